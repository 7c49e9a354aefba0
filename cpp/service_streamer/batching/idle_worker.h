#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_limits.h"
#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/waiting/waiter.h"

namespace service_streamer {

// A worker that may wait for a batch of an Engine. Its members are guarded by the mutex of the engine.
struct IdleWorker {
  explicit IdleWorker(Waiter& to_wake) : waiter(to_wake) {}

  Waiter& waiter;
  // Of the callers that are being woken, these come first, because they may submit again: none; those of
  // WakeQueue::Others::kFirst; all; or all if the model is very fast.
  enum class Behind { kNone, kFirst, kAll, kAllOfFast } behind = Behind::kNone;
  enum class State {
    kAway,
    kIdle,
    kReserved
  } state = State::kAway;              // kIdle: the engine may wake it; kReserved: a batch is reserved for it
  TimePoint until = TimePoint::max();  // the end of its sleep, if no thread wakes it
  CloseReason reason = CloseReason::kIdle;
  ItemWeights live;  // of the batches that it works on, if it takes further ones meanwhile
};

// What else ends Engine::wait_for_batch(), with kNotYet.
struct WaitEnd {
  TimePoint deadline = TimePoint::max();
  const std::atomic<bool>* rung = nullptr;  // another thread sets it, and then wakes the waiter
  bool when_closed = true;                  // false: kClosed does not end the wait
  IdleWorker::Behind behind = IdleWorker::Behind::kNone;
};

// A worker to wake after the mutex of the engine is released; waiter == nullptr: none.
struct WorkerWake {
  Waiter* waiter = nullptr;
  std::optional<WakeQueue::Others> behind = std::nullopt;  // through WakeQueue::wake_after()

  void run() const;
};

// Threads to wake after the mutex of the engine is released.
struct Wakes {
  WorkerWake worker;
  std::vector<Waiter*> others;
  void run();
};

}  // namespace service_streamer
