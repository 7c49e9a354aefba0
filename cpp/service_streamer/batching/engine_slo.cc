#include <algorithm>

#include "service_streamer/batching/engine.h"

// The target of the engine: requests that would miss it are refused, and batches are limited. Also when to try again.

namespace service_streamer {

void Engine::end_hopeless(EndedRequests& ended) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    end_hopeless(now, ended, wakes);
    if (ended.count > 0) settle(now, wakes);
  }
  wakes.run();
}

double Engine::retry_after(const Request& refused) const {
  MutexLock lock(mutex_);
  if (policy_.mean_service() == Duration::zero()) return seconds(options_.max_latency);
  const double batches = static_cast<double>(queue_.items_before(refused)) / std::max(policy_.mean_batch_size(), 1.0);
  return batches * seconds(policy_.mean_service()) / options_.workers;
}

// --- under the mutex ---

// With a target. A request of a higher priority than all others goes before them. No request waits for room.
bool Engine::misses_target(SloPolicy& slo, Request& request) {
  const bool first = queue_.requests() == 0 || request.priority > queue_.top_priority();
  const Duration waited = request.arrived - request.begun();
  Duration late = slo.refuse(request.arrived, waited, first ? 0 : queue_.items_before(request), request.size);
  if (late == Duration::zero() && !queue_.has_room(request)) late = options_.slo;
  if (late == Duration::zero()) return false;
  request.retry_after = static_cast<float>(seconds(late));
  count(request, Outcome::kRefused);
  return true;
}

// Does nothing without a target.
void Engine::end_hopeless(TimePoint now, EndedRequests& ended, Wakes& wakes) {
  while (slo_ && queue_.requests() > 0) {
    Request& front = queue_.front();
    const std::size_t items = queue_.items();
    const std::size_t left = front.size - front.dispatched;
    if (!slo_->hopeless(now, front.begun(), left, queue_.company_of(front).items)) return;
    front.retry_after = static_cast<float>(seconds(slo_->lateness(now, Duration::zero(), items - left, front.size)));
    end(front, Outcome::kRefused, now, ended, wakes);
  }
}

// When the timer should call end_hopeless() again. It sleeps for the target after the last arrival, so the next request
// seldom has to wake it.
TimePoint Engine::next_hopeless(TimePoint now) {
  if (!slo_) return TimePoint::max();
  if (queue_.requests() > 0) {
    Request& front = queue_.front();
    return slo_->hopeless_at(front.begun(), front.size - front.dispatched, queue_.company_of(front).items);
  }
  const TimePoint next = slo_->end_of_target(slo_->last_arrival());
  return next > now ? next : TimePoint::max();
}

void Engine::learn_target(SloPolicy& slo, const Batch& batch, TimePoint now) {
  TimePoint oldest = batch.dispatched;
  for (const RequestRange& range : batch.ranges) oldest = std::min(oldest, range.request->begun());
  slo.completed(now, batch.dispatched, batch.items, batch.dispatched - oldest);
  apply_options();
}

// Called when the options have changed, before apply_options().
void Engine::apply_target() {
  has_target_.store(options_.slo > Duration::zero(), std::memory_order_relaxed);
  if (!has_target()) {
    slo_.reset();
  } else if (slo_) {
    slo_->configure(options_.slo_options());
  } else {
    slo_.emplace(options_.slo_options());
  }
}

// Called when the options or the limit of SloPolicy have changed.
void Engine::apply_options() {
  const std::size_t before = batch_limit_;
  batch_limit_ = slo_ ? slo_->batch_limit() : options_.batch_size;
  if (batch_limit_ != before) queue_.set_batch_size(batch_limit_);
  BatchPolicy::Options limited = options_.policy_options();
  limited.batch_size = batch_limit_;
  policy_.configure(limited);
}

}  // namespace service_streamer
