#pragma once

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
  Waiter* next_free = nullptr;

  // Of the queue of WakeChain.
  enum class Turn { kNone, kQueued, kAwake } turn = Turn::kNone;
  Waiter* previous = nullptr;
  Waiter* next = nullptr;
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
// The first thread that waits sleeps on a waiter of its own, which WakeChain queues (below); further threads sleep on the state
// word. A thread that gives up takes itself out. If it is already queued, it waits for the end, which is being published.
class Completion {
 public:
  enum class Wait { kDone, kTimeout, kInterrupted };

  // Makes it done where no thread of this process waits: in a forked child, or before the request is shared.
  void finish();

  bool done() const { return (state_.load(std::memory_order_acquire) & kDone) != 0; }

  // Never blocks: makes `waiter` the one that WakeChain queues. A thread that calls this before its request can end never goes
  // on before its turn. False: done, or another thread came first. wait() must follow, with `entered`.
  bool enter(Waiter& waiter);

  // Blocks until published, the deadline, or a signal handler ran in this thread. Any thread; `waiter` is the caller's.
  Wait wait(Waiter& waiter, TimePoint deadline, bool entered = false);

 private:
  friend class WakeChain;
  enum : std::uint32_t { kPending = 0, kDone = 1, kCrowd = 2 };

  bool leave(Waiter& waiter);
  Wait wait_in_crowd(TimePoint deadline);

  std::atomic<std::uint32_t> state_{kPending};
  std::atomic<Waiter*> waiter_{nullptr};  // the first thread that waits, or taken()
};

// Publishes the ends of requests and wakes their callers, in the order of publishing.
//
// The callers of all batches of the process form one queue. At most four threads of it are awake at a time. A woken thread
// counts as awake until it calls leave(), or returns its waiter to the WaiterPool, which it does when it has what it needs to
// go on (the GIL, in Python). That wakes the next thread. Any thread may publish and wake.
class WakeChain {
 public:
  // Makes `completion` done. A thread that sleeps on its waiter is queued, to be woken by wake() or a thread that leaves.
  void publish(Completion& completion);

  void wake();

  // For a thread that has waited and keeps its waiter. Nothing if the waiter is not in the queue. The thread has the GIL or a
  // ForkLock, as for WaiterPool::release().
  static void leave(Waiter& waiter);

 private:
  bool any_ = false;
};

}  // namespace service_streamer
