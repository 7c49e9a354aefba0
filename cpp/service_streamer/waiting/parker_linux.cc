#include "service_streamer/waiting/parker.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

namespace service_streamer {
namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

timespec to_timespec(TimePoint deadline) {
  const auto nanoseconds =
      std::max(deadline, TimePoint{}).time_since_epoch().count();  // the kernel rejects negative times
  return {.tv_sec = nanoseconds / 1'000'000'000, .tv_nsec = nanoseconds % 1'000'000'000};
}

}  // namespace

Parker::Wake wait_on(std::atomic<std::uint32_t>& word, std::uint32_t expected, TimePoint deadline) {
  // FUTEX_WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC, which is what steady_clock reads.
  const timespec until = to_timespec(deadline);
  const long rc = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
                          deadline == TimePoint::max() ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  if (rc == 0 || errno == EAGAIN) return Parker::Wake::kUnparked;
  return errno == ETIMEDOUT ? Parker::Wake::kTimeout : Parker::Wake::kInterrupted;
}

void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, nullptr, nullptr, 0);
}

timespec time_left(TimePoint until) {
  return to_timespec(TimePoint(until - Clock::now()));
}

Parker::Wake Parker::park(TimePoint deadline) {
  if (!begin_sleep()) {
    end_sleep();
    return Wake::kUnparked;
  }
  // A futex wait may end for no reason. Only the state says whether unpark() was called.
  Wake wake;
  do {
    wake = wait_on(state_, kParked, deadline);
  } while (wake == Wake::kUnparked && state_.load(std::memory_order_relaxed) == kParked);
  return state_.exchange(kEmpty, std::memory_order_acquire) == kNotified ? Wake::kUnparked : wake;
}

Parker::Wake Parker::park(TimePoint deadline, int fd, bool& readable) {
  readable = false;
  if (!begin_sleep()) {
    end_sleep();
    return Wake::kUnparked;
  }
  std::array<pollfd, 2> watched{
      {{.fd = fd, .events = POLLIN, .revents = 0}, {.fd = event_, .events = POLLIN, .revents = 0}}};
  const timespec left = time_left(deadline);
  const int ready = ppoll(watched.data(), watched.size(), deadline != TimePoint::max() ? &left : nullptr, nullptr);
  if (ready > 0 && watched[1].revents != 0) {
    std::uint64_t count = 0;  // unread, it would end every later sleep
    [[maybe_unused]] const ssize_t received = read(event_, &count, sizeof count);
  }
  readable = ready > 0 && watched[0].revents != 0;
  if (end_sleep() || ready > 0) return Wake::kUnparked;
  return ready < 0 ? Wake::kInterrupted : Wake::kTimeout;
}

// On failure the state stays kNotified, so that end_sleep() reports the wake-up.
bool Parker::begin_sleep() {
  std::uint32_t expected = kEmpty;
  return state_.compare_exchange_strong(expected, kParked, std::memory_order_acquire);
}

bool Parker::end_sleep() {
  return state_.exchange(kEmpty, std::memory_order_acquire) == kNotified;
}

void Parker::unpark() {
  // A thread that is awake sees the state before it sleeps, so only a sleeping one costs a system call.
  if (state_.exchange(kNotified, std::memory_order_release) != kParked) return;
  if (event_ < 0) {
    syscall(SYS_futex, &state_, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, nullptr, 0);
  } else {
    const std::uint64_t one = 1;  // never blocks: the counter holds 2^64 - 2 unread wake-ups
    [[maybe_unused]] const ssize_t written = write(event_, &one, sizeof one);
  }
}

}  // namespace service_streamer
