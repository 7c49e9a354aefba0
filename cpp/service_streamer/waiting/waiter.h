#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/waiting/parker.h"

namespace service_streamer {

// A sleeping place for one thread. Comes from a WaiterPool and is never freed, so that a wake-up that arrives late hits
// valid memory: it is then a spurious one for whoever sleeps there next.
struct Waiter {
  Waiter() = default;
  explicit Waiter(int event) : parker(event) {}

  Parker parker;
  Waiter* next_to_wake = nullptr;  // chained wakes: whom the woken thread wakes before it does anything else
  bool ends_chain = false;         // the last one to be gathered: its thread tells the engine
  Waiter* next_free = nullptr;
};

// Hands out waiters; thread-safe, never blocks for long. What it allocated lives as long as the process.
class WaiterPool {
 public:
  static Waiter& acquire();
  static void release(Waiter& waiter);

  // The same for a thread that sleeps in epoll or poll, where it watches `event` (see Parker). Throws std::system_error when the
  // process has no descriptor left. Safe in forked children, which get none of their parent's.
  static Waiter& acquire_with_event(int& event);
  static void release_with_event(Waiter& waiter);
};

// The end of one request: published once, waited for by any number of threads.
//
// The first thread that waits sleeps on a waiter of its own, which lets a batch wake its callers in a chain (below); any
// further ones sleep on the state word. A thread that leaves early takes itself out, or, when it was already taken into
// a chain, waits for the wake-up that is on its way and hands the chain on: a chain never breaks.
class Completion {
 public:
  enum class Wait { kDone, kTimeout, kInterrupted };

  bool done() const { return (state_.load(std::memory_order_acquire) & kDone) != 0; }

  // Blocks until published, the deadline, or a signal handler ran in this thread. Any thread; `waiter` is the caller's.
  Wait wait(Waiter& waiter, TimePoint deadline, Duration spin = Duration::zero());

  // The same, but sleeps by sleep(deadline), which is to end as Parker::park() does. Only the first thread that waits does; a further one
  // sleeps as in wait().
  template <typename Sleep>
  Wait wait_by(Waiter& waiter, TimePoint deadline, Sleep sleep) {
    if (done()) return Wait::kDone;
    if (!enter(waiter)) return wait_in_crowd(deadline);
    for (;;) {
      const Parker::Wake wake = sleep(deadline);
      if (done()) break;
      if (wake == Parker::Wake::kUnparked) continue;
      if (leave(waiter)) return wake == Parker::Wake::kTimeout ? Wait::kTimeout : Wait::kInterrupted;
      deadline = TimePoint::max();  // taken into a chain: the wake-up is on its way
    }
    wake_next(waiter);
    return Wait::kDone;
  }

 private:
  friend class WakeChain;
  enum : std::uint32_t { kPending = 0, kDone = 1, kCrowd = 2 };

  bool enter(Waiter& waiter);
  bool leave(Waiter& waiter);
  Wait wait_in_crowd(TimePoint deadline);
  static void wake_next(Waiter& waiter);

  std::atomic<std::uint32_t> state_{kPending};
  std::atomic<Waiter*> waiter_{nullptr};  // the first thread that waits, or taken()
};

// Publishes the ends of one batch and wakes its callers, each once.
//
// A few are all woken here. Of many only the first is, and each wakes the next before it asks for anything (the GIL, in
// Python): woken all at once they would only fight for it. Callers that are gathered (Engine::waking) are woken in two such
// chains, by turns: with one the GIL would lie idle while the next of them wakes up, for nobody else asks for it.
// Publish in reverse order: the last published is woken first.
class WakeChain {
 public:
  // For at most `completions` calls of publish().
  explicit WakeChain(std::size_t completions, bool gathers = false);

  // Makes `completion` done. Who sleeps on its waiter sleeps on until wake().
  void publish(Completion& completion);

  // How many of those published will find their Waiter::ends_chain set.
  std::size_t gathered_chains() const { return gathers_ ? std::min(count_, chains_) : 0; }

  void wake();

  // Where a single thread is to be woken: that one, whom wake() leaves to the caller of this. Else nullptr.
  Waiter* take_only();

 private:
  static constexpr std::size_t kWakeAllUpTo = 2;
  static constexpr std::size_t kMostChains = 2;

  const bool gathers_;
  const std::size_t chains_;
  std::size_t count_ = 0;
  std::array<Waiter*, kMostChains> first_{};  // to wake, of each chain
};

}  // namespace service_streamer
