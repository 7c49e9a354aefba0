#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>

#include "service_streamer/base/clock.h"
#ifdef SERVICE_STREAMER_PORTABLE
#include "service_streamer/waiting/semaphore.h"
#endif

namespace service_streamer {

// Puts one thread to sleep until another thread wakes it. All waits of this project use it or wait_on(). On Linux
// it sleeps on a futex (parker_linux.cc), elsewhere on a Semaphore (parker_portable.cc).
//
// A wake-up that comes before the sleep is kept: the next sleep ends at once. So no wake-up is lost between the check
// of a predicate and the sleep. A wake-up may be spurious, because it was meant for an earlier sleep. So callers
// check their predicate in a loop. The object must outlive every call of unpark(); `WaiterPool` never frees its
// parkers.
class Parker {
 public:
#ifdef SERVICE_STREAMER_PORTABLE
  using Wake = Semaphore::Wake;
  // A forked child must not use the parkers of its parent: a thread of the parent may have locked one at the fork.
  static constexpr bool kSurvivesFork = false;

  Parker() : semaphore_(Semaphore::make()) {}
#else
  enum class Wake { kUnparked, kTimeout, kInterrupted };
  static constexpr bool kSurvivesFork = true;

  Parker() = default;
  // For a thread that sleeps in epoll or poll and watches `event` there, an eventfd. unpark() writes to `event`. The
  // thread may read it, or leave it unread and watch it edge-triggered. `event` must outlive the parker.
  explicit Parker(int event) : event_(event) {}
#endif
  Parker(const Parker&) = delete;
  Parker& operator=(const Parker&) = delete;

  // Blocks until unpark(), until `deadline` (TimePoint::max() means none), or until a signal handler ran in this
  // thread. A Semaphore decides whether it sees signals.
  Wake park(TimePoint deadline);

#ifndef SERVICE_STREAMER_PORTABLE
  // The same for a parker with an event. It also ends when `fd` is readable or at its end; then sets `readable` and
  // returns kUnparked. -1: no descriptor.
  Wake park(TimePoint deadline, int fd, bool& readable);

  // The begin and the end of a sleep in epoll or poll. If begin_sleep() returns false, a wake-up is pending: the
  // thread may poll its descriptors but must not sleep. end_sleep() returns whether unpark() was called, so the
  // thread checks its predicate.
  bool begin_sleep();
  bool end_sleep();
#endif

  // Wakes the sleeping thread, or makes its next sleep return at once. Any thread; makes a system call only if the
  // thread sleeps.
  void unpark();

 private:
  enum : std::uint32_t { kEmpty = 0, kNotified = 1, kParked = 2 };

  std::atomic<std::uint32_t> state_{kEmpty};
#ifdef SERVICE_STREAMER_PORTABLE
  const std::unique_ptr<Semaphore> semaphore_;
#else
  const int event_ = -1;
#endif
};

// The time from now until `until`, for ppoll; zero if `until` has passed. Only on Linux.
timespec time_left(TimePoint until);

// Blocks while `word` has the value `expected`. Otherwise it ends as Parker::park() does, and may also end spuriously.
// wake_all() wakes all threads that wait on the word.
Parker::Wake wait_on(std::atomic<std::uint32_t>& word, std::uint32_t expected, TimePoint deadline);
void wake_all(std::atomic<std::uint32_t>& word);

}  // namespace service_streamer
