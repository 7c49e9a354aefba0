#include "service_streamer/transport/poller.h"

#include <poll.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

namespace service_streamer::ipc {
namespace {

constexpr std::uint64_t kWakeKey = std::numeric_limits<std::uint64_t>::max();

FileDescriptor open_epoll() {
  const ForkLock lock;
  const int fd = epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  return FileDescriptor(fd);
}

void control(int epoll, int operation, int fd, std::uint64_t key, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = key}};
  if (epoll_ctl(epoll, operation, fd, &event) != 0) {
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }
}

// Timeouts of epoll_wait have milliseconds; those of ppoll have nanoseconds.
void sleep_until(int epoll, TimePoint until) {
  const timespec timeout = time_left(until);
  pollfd readable{.fd = epoll, .events = POLLIN, .revents = 0};
  ppoll(&readable, 1, &timeout, nullptr);
}

}  // namespace

Poller::Poller() : epoll_(open_epoll()), waiter_(WaiterPool::acquire_with_event(event_)) {
  control(epoll_.get(), EPOLL_CTL_ADD, event_, kWakeKey, EPOLLIN | EPOLLET);
}

void Poller::close() {
  if (std::exchange(event_, -1) >= 0) WaiterPool::release_with_event(waiter_);
  epoll_.reset();
}

void Poller::watch(int fd, std::uint64_t key, std::uint32_t events) {
  control(epoll_.get(), EPOLL_CTL_ADD, fd, key, events);
}

void Poller::change(int fd, std::uint64_t key, std::uint32_t events) {
  control(epoll_.get(), EPOLL_CTL_MOD, fd, key, events);
}

void Poller::forget(int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::span<const Poller::Event> Poller::sleep(TimePoint until, bool& woken) {
  std::array<epoll_event, 64> received;
  const bool may_sleep = until > TimePoint::min() && waiter_.parker.begin_sleep();
  if (may_sleep && until != TimePoint::max()) sleep_until(epoll_.get(), until);
  const int timeout = may_sleep && until == TimePoint::max() ? -1 : 0;
  const int count = epoll_wait(epoll_.get(), received.data(), static_cast<int>(received.size()), timeout);
  woken = waiter_.parker.end_sleep();
  ready_.clear();
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = received[static_cast<std::size_t>(i)];
    if (event.data.u64 != kWakeKey) ready_.push_back({event.data.u64, event.events});
  }
  return ready_;
}

}  // namespace service_streamer::ipc
