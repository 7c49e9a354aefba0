#include <atomic>
#include <utility>

#include "service_streamer/batching/batch_cut.h"
#include "service_streamer/batching/engine.h"

// Batches that have run: they are given back, or cut to be run again, and their results are delivered.

namespace service_streamer {

void Engine::complete(Batch& batch, Outcome outcome, EndedRequests& ended, ReleasedRequests& released) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    if (!batch.rerun) note_completed(batch, now);
    --running_batches_;
    running_items_ -= batch.items;
    if (recording()) [[unlikely]]
      log_completed(batch, outcome, now);
    const std::uint64_t answered_before = counters_.completed;
    for (const RequestRange& range : batch.ranges) {
      if (range.postponed) {
        queue_alone(range, now, ended, released, wakes);
      } else {
        put_back(range, range.failed ? Outcome::kFailed : outcome, now, ended, released, wakes);
      }
    }
    if (batch.rerun || batch.isolated) counters_.isolated += counters_.completed - answered_before;
    end_hopeless(now, ended, wakes);
    settle(now, wakes);
  }
  batch = {};
  wakes.run();
}

void Engine::split(Batch& batch, const BatchCut& cut, Batch& first) {
  first = batch;
  MutexLock lock(mutex_);
  const TimePoint now = Clock::now();
  if (!batch.rerun) note_completed(batch, now);
  batch.rerun = first.rerun = true;
  keep_before(cut, first.ranges);
  keep_after(cut, batch.ranges);
  if (cut.inside > 0) batch.ranges.front().request->holds.fetch_add(1, std::memory_order_relaxed);
  first.items = cut.items;
  batch.items -= cut.items;
  first.id = ++last_batch_;
  ++running_batches_;
  if (recording()) [[unlikely]]
    log_split(first, batch, now);
}

void Engine::join(Batch& batch, Batch& first) {
  batch.items += first.items;
  put_before(batch.ranges, first.ranges, [](const RequestRange& range) {
    range.request->holds.fetch_sub(1, std::memory_order_relaxed);  // split() added one for the second half
  });
  const Batch joined = std::exchange(first, {});
  MutexLock lock(mutex_);
  --running_batches_;
  if (recording()) [[unlikely]]
    log_batch(LoggedEvent::Kind::kJoined, joined, Clock::now(), 0, 0);
}

void Engine::postpone(Batch& batch, EndedRequests& ended, ReleasedRequests& released) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    for (RequestRange& range : batch.ranges) {
      if (!range.whole()) continue;
      batch.items -= range.count;
      running_items_ -= range.count;
      queue_alone(range, now, ended, released, wakes);
      range.request = nullptr;
    }
    settle(now, wakes);
  }
  wakes.run();
}

void Engine::drop_ended(Batch& batch, EndedRequests& ended, ReleasedRequests& released) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    for (RequestRange& range : batch.ranges) {
      Request& request = *range.request;
      if (request.phase != Request::Phase::kEnded && request.deadline > now) continue;
      if (request.phase != Request::Phase::kEnded) end(request, Outcome::kExpired, now, ended, wakes);
      if (request.drop_hold()) released.push(request);
      batch.items -= range.count;
      running_items_ -= range.count;
      range.request = nullptr;
    }
    settle(now, wakes);
  }
  wakes.run();
}

void Engine::delivered(const Request& request, TimePoint now) {
  if (now >= next_second_.load(std::memory_order_relaxed)) {
    MutexLock lock(mutex_);
    before_event(now);
  }
  times_.delivery_time.add(now - request.ended);
}

// --- under the mutex ---

void Engine::put_back(const RequestRange& range, Outcome outcome, TimePoint now, EndedRequests& ended,
                      ReleasedRequests& released, Wakes& wakes) {
  Request& request = *range.request;
  const bool ended_before = request.phase == Request::Phase::kEnded;
  if (request.drop_hold()) released.push(request);  // so it has ended and was published
  if (ended_before) return;
  request.answered += range.count;
  if (outcome != Outcome::kAnswered || request.answered == request.size) end(request, outcome, now, ended, wakes);
}

void Engine::queue_alone(const RequestRange& range, TimePoint now, EndedRequests& ended, ReleasedRequests& released,
                         Wakes& wakes) {
  Request& request = *range.request;
  const bool ended_before = request.phase == Request::Phase::kEnded;
  if (request.drop_hold()) released.push(request);
  if (ended_before) return;
  drains_ ? queue_.push_alone(request) : end(request, Outcome::kClosed, now, ended, wakes);
}

void Engine::note_completed(const Batch& batch, TimePoint now) {
  const Duration service = now - batch.dispatched;
  before_event(now);
  if (batch.items > 0) times_.service_time.add(service);  // 0 if all its requests ended before it was run again
  const bool by_weight = options_.buckets > 0 && batch.padded > 0;
  const double weight = by_weight ? batch.padded : static_cast<double>(batch.items);
  policy_.completed(now, batch.items, service, batch.finishing, weight);
  constexpr Duration kFast = std::chrono::microseconds(500);
  answers_fast_.store(policy_.mean_service() < kFast, std::memory_order_relaxed);
  if (options_.buckets > 0) {
    buckets_.completed(now, batch.dispatched, running_batches_ > options_.workers, batch.padded);
  }
  if (slo_) learn_target(*slo_, batch, now);
}

}  // namespace service_streamer
