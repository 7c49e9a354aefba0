#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

#include "service_streamer/base/clock.h"

namespace service_streamer {

// Puts one thread to sleep until another one wakes it; the futex under every wait of this project.
//
// A wake-up that comes before the sleep is kept, so nothing is lost between looking and sleeping. Wake-ups may be
// spurious (a late one meant for an earlier sleep): callers loop on a predicate. The object must outlive every unpark()
// that may still be on its way; `WaiterPool` never frees them.
class Parker {
 public:
  enum class Wake { kUnparked, kTimeout, kInterrupted };

  Parker() = default;
  // For a thread that sleeps in epoll or poll: a wake-up is written to `event`, an eventfd that it watches there. What was written
  // may be left there (edge-triggered) or read. It must outlive the parker.
  explicit Parker(int event) : event_(event) {}
  Parker(const Parker&) = delete;
  Parker& operator=(const Parker&) = delete;

  // Blocks until unpark(), until `deadline` (TimePoint::max(): none), or until a signal handler ran in this thread.
  // Looks for the wake-up in a busy loop for `spin` before it sleeps.
  Wake park(TimePoint deadline, Duration spin = Duration::zero());

  // The two ends of such a sleep. begin_sleep() is false when a wake-up came before: epoll may then be asked but not
  // slept in. end_sleep(): whether there was a wake-up, so that what it told of must be looked at.
  bool begin_sleep();
  bool end_sleep();

  // Wakes the thread that sleeps here, or lets its next park() return at once. A system call only if it sleeps.
  void unpark();

 private:
  enum : std::uint32_t { kEmpty = 0, kNotified = 1, kParked = 2 };

  bool take_notification(Duration spin);

  std::atomic<std::uint32_t> state_{kEmpty};
  const int event_ = -1;
};

// From now on the timed sleeps of this thread end when they should, not up to 50 µs later, which are half of the shortest linger.
void wake_in_time();

// For ppoll: how long it is until then, or no time at all.
timespec time_left(TimePoint until);

// Tells the processor that this is a busy loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Blocks while `word` is `expected`, with the same ways to end; wake_all() wakes everybody who waits on the word.
Parker::Wake wait_on(std::atomic<std::uint32_t>& word, std::uint32_t expected, TimePoint deadline);
void wake_all(std::atomic<std::uint32_t>& word);

}  // namespace service_streamer
