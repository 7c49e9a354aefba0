#include <atomic>

#include "service_streamer/batching/batch_cut.h"
#include "service_streamer/batching/engine.h"

// What becomes of a batch that has run: it is given back, or cut to be run again.

namespace service_streamer {

void Engine::complete(Batch& batch, Outcome outcome, EndedRequests& ended, ReleasedRequests& released) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    if (!batch.rerun) note_completed(batch, now);
    --running_batches_;
    running_items_ -= batch.items;
    const std::uint64_t answered_before = counters_.completed;
    for (const BatchPart& part : batch.parts) {
      put_back(part, part.failed ? Outcome::kFailed : outcome, now, ended, released, wakes);
    }
    if (batch.rerun || batch.isolated) counters_.isolated += counters_.completed - answered_before;
    settle(now, wakes);
  }
  batch = {};
  wakes.run();
}

bool Engine::split(Batch& batch, bool between_items, Batch& second) {
  const BatchCut cut = middle_of(batch.parts, between_items);
  if (cut.items == 0) return false;
  second = batch;
  MutexLock lock(mutex_);
  if (!batch.rerun) note_completed(batch, Clock::now());
  batch.rerun = second.rerun = true;
  keep_before(cut, batch.parts);
  keep_behind(cut, second.parts);
  if (cut.inside > 0) second.parts.front().request->holds.fetch_add(1, std::memory_order_relaxed);
  batch.items = cut.items;
  second.items -= cut.items;
  ++running_batches_;
  return true;
}

void Engine::drop_ended(Batch& batch, EndedRequests& ended, ReleasedRequests& released) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    for (BatchPart& part : batch.parts) {
      Request& request = *part.request;
      if (request.phase != Request::Phase::kEnded && request.deadline > now) continue;
      if (request.phase != Request::Phase::kEnded) end(request, Outcome::kExpired, now, ended, wakes);
      if (request.drop_hold()) released.push(request);
      batch.items -= part.count;
      running_items_ -= part.count;
      part.request = nullptr;
    }
    settle(now, wakes);
  }
  wakes.run();
}

// --- under the mutex ---

void Engine::put_back(const BatchPart& part, Outcome outcome, TimePoint now, EndedRequests& ended,
                      ReleasedRequests& released, Wakes& wakes) {
  Request& request = *part.request;
  const bool ended_before = request.phase == Request::Phase::kEnded;
  if (request.drop_hold()) released.push(request);  // the last hold can only go after it was ended and published
  if (ended_before) return;
  request.answered += part.count;
  if (outcome != Outcome::kAnswered || request.answered == request.size) end(request, outcome, now, ended, wakes);
}

void Engine::note_completed(const Batch& batch, TimePoint now) {
  const Duration service = now - batch.dispatched;
  if (batch.items > 0) service_time_.add(service);  // else all its callers gave up before it was run again
  policy_.completed(now, batch.items, service, batch.finishing);
}

}  // namespace service_streamer
