#include "service_streamer/waiting/answer_wait.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace service_streamer::ipc {

AnswerWait::AnswerWait() : waiter_(WaiterPool::acquire_with_event(event_)) {}

AnswerWait::~AnswerWait() {
  WaiterPool::release_with_event(waiter_);
}

Parker::Wake AnswerWait::sleep(int fd, TimePoint deadline, bool& readable) {
  readable = false;
  Parker& parker = waiter_.parker;
  if (!parker.begin_sleep()) {
    parker.end_sleep();
    return Parker::Wake::kUnparked;
  }
  const timespec timeout = time_left(deadline);
  std::array<pollfd, 2> watched{
      {{.fd = fd, .events = POLLIN, .revents = 0}, {.fd = event_, .events = POLLIN, .revents = 0}}};
  const int ready = ppoll(watched.data(), watched.size(), deadline == TimePoint::max() ? nullptr : &timeout, nullptr);
  if (ready > 0 && watched[1].revents != 0) {
    std::uint64_t count = 0;  // poll() would tell of it again and again
    [[maybe_unused]] const ssize_t got = read(event_, &count, sizeof count);
  }
  readable = ready > 0 && watched[0].revents != 0;
  if (parker.end_sleep() || ready > 0) return Parker::Wake::kUnparked;
  return ready < 0 ? Parker::Wake::kInterrupted : Parker::Wake::kTimeout;
}

}  // namespace service_streamer::ipc
