#include "service_streamer/batching/engine.h"

// Forwarding: the engine is only a waiting room for requests that another engine will serve.

namespace service_streamer {

// Each request counts as a running batch, because each is given back by itself. The policy learns nothing from them.
bool Engine::forward(Batch& batch, std::size_t limit, EndedRequests& ended) {
  batch = {};
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    Request* first = first_live(CloseReason::kIdle, now, ended, wakes);
    fill(batch, {.first = first, .limits = {.items = limit}, .whole = true}, now, ended, wakes);
    running_batches_ += static_cast<int>(batch.ranges.size());
    running_items_ += batch.items;
    settle(now, wakes);
  }
  wakes.run();
  return batch.items > 0;
}

void Engine::hold_back_below(std::int64_t priority) {
  MutexLock lock(mutex_);
  least_due_priority_ = priority;
}

void Engine::take_back(std::span<const Returned> requests, EndedRequests& ended, ReleasedRequests& released) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    for (const Returned& returned : requests) {
      const RequestRange all{.request = returned.request, .begin = 0, .count = returned.request->size};
      --running_batches_;
      running_items_ -= all.count;
      if (returned.outcome == Outcome::kNone && !closed()) {
        queue_again(*returned.request, released);
      } else {
        const Outcome outcome = returned.outcome == Outcome::kNone ? Outcome::kClosed : returned.outcome;
        put_back(all, outcome, now, ended, released, wakes);
      }
    }
    settle(now, wakes);
  }
  wakes.run();
}

// --- under the mutex ---

void Engine::queue_again(Request& request, ReleasedRequests& released) {
  const bool ended_before = request.phase == Request::Phase::kEnded;
  if (request.drop_hold()) released.push(request);
  if (!ended_before) queue_.push_again(request);
}

}  // namespace service_streamer
