#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

#include "service_streamer/base/clock.h"

namespace service_streamer {

// Puts one thread to sleep until another thread wakes it. All waits of this project use it or wait_on().
//
// A wake-up that comes before the sleep is kept: the next sleep ends at once. So no wake-up is lost between the check
// of a predicate and the sleep. A wake-up may be spurious, because it was meant for an earlier sleep. So callers
// check their predicate in a loop. The object must outlive every call of unpark(); `WaiterPool` never frees its
// parkers.
class Parker {
 public:
  enum class Wake { kUnparked, kTimeout, kInterrupted };

  Parker() = default;
  // For a thread that sleeps in epoll or poll and watches `event` there, an eventfd. unpark() writes to `event`. The
  // thread may read it, or leave it unread and watch it edge-triggered. `event` must outlive the parker.
  explicit Parker(int event) : event_(event) {}
  Parker(const Parker&) = delete;
  Parker& operator=(const Parker&) = delete;

  // Blocks until unpark(), until `deadline` (TimePoint::max() means none), or until a signal handler ran in this
  // thread.
  Wake park(TimePoint deadline);

  // The same for a parker with an event. It also ends when `fd` is readable or at its end; then sets `readable` and
  // returns kUnparked. -1: no descriptor.
  Wake park(TimePoint deadline, int fd, bool& readable);

  // The begin and the end of a sleep in epoll or poll. If begin_sleep() returns false, a wake-up is pending: the
  // thread may poll its descriptors but must not sleep. end_sleep() returns whether unpark() was called, so the
  // thread checks its predicate.
  bool begin_sleep();
  bool end_sleep();

  // Wakes the sleeping thread, or makes its next sleep return at once. Any thread; makes a system call only if the
  // thread sleeps.
  void unpark();

 private:
  enum : std::uint32_t { kEmpty = 0, kNotified = 1, kParked = 2 };

  std::atomic<std::uint32_t> state_{kEmpty};
  const int event_ = -1;
};

// From now on timed sleeps of this thread end at their deadline. By default Linux may end them later, to join wake-ups.
void use_exact_timers();

// The time from now until `until`, for ppoll; zero if `until` has passed.
timespec time_left(TimePoint until);

// Blocks while `word` has the value `expected`. Otherwise it ends as Parker::park() does, and may also end spuriously.
// wake_all() wakes all threads that wait on the word.
Parker::Wake wait_on(std::atomic<std::uint32_t>& word, std::uint32_t expected, TimePoint deadline);
void wake_all(std::atomic<std::uint32_t>& word);

}  // namespace service_streamer
