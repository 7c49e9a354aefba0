#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include "service_streamer/batching/engine.h"

// When a batch is due: how workers wait for it, and are woken.

namespace service_streamer {
Engine::Ready Engine::poll(CloseReason& reason, const ItemWeights& live) {
  TimePoint until;
  MutexLock lock(mutex_);
  return reserve_if_due(idle_.size() + 1, live, reason, until);
}

Engine::Ready Engine::wait_for_batch(Waiter& waiter, CloseReason& reason, const WaitEnd& end, const ItemWeights& live) {
  IdleWorker self(waiter);
  self.behind = end.behind;
  for (;;) {
    TimePoint until = TimePoint::max();
    const Ready ready = start_waiting(self, reason, until, live);
    if (ready == Ready::kBatch || (ready == Ready::kClosed && end.when_closed)) return ready;
    const bool rung = end.rung != nullptr && end.rung->load(std::memory_order_acquire);
    const bool over = rung || (end.deadline != TimePoint::max() && end.deadline <= Clock::now());
    if (over || waiter.parker.park(std::min(until, end.deadline)) == Parker::Wake::kInterrupted) {
      stop_waiting(self);
      return over ? Ready::kNotYet : Ready::kInterrupted;
    }
  }
}

Engine::Ready Engine::start_waiting(IdleWorker& worker, CloseReason& reason, TimePoint& until,
                                    const ItemWeights& live) {
  MutexLock lock(mutex_);
  if (worker.state == IdleWorker::State::kReserved) {
    worker.state = IdleWorker::State::kAway;
    reason = worker.reason;
    return Ready::kBatch;
  }
  const bool again = worker.state == IdleWorker::State::kIdle;
  const Ready ready = reserve_if_due(idle_.size() + (again ? 0 : 1), live, reason, until);
  if (ready == Ready::kNotYet) {
    worker.until = until;
    worker.live = live;
    worker.state = IdleWorker::State::kIdle;
    if (!again) idle_.push_back(&worker);
  } else if (again) {
    leave_idle(worker);
  }
  return ready;
}

void Engine::stop_waiting(IdleWorker& worker) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    if (worker.state == IdleWorker::State::kAway) return;
    if (worker.state == IdleWorker::State::kReserved) --reserved_;
    leave_idle(worker);
    wakes.worker = worker_to_wake(Clock::now());  // to take its batch, or to wake at its `until`
  }
  wakes.run();
}

// --- under the mutex ---

// kBatch if a batch is due for a worker that is one of `idle_workers` idle ones, and is now reserved for it. kNotYet:
// the worker should sleep until `until`.
Engine::Ready Engine::reserve_if_due(std::size_t idle_workers, const ItemWeights& live, CloseReason& reason,
                                     TimePoint& until) {
  if (exhausted()) return Ready::kClosed;
  const TimePoint now = Clock::now();
  BatchPolicy::Verdict verdict;
  const bool something_waits = due(now, idle_workers, verdict) && has_room(live, queue_.front());
  if (!something_waits || verdict.at > now) {
    until = sleep_until(something_waits, verdict.at, now);
    return Ready::kNotYet;
  }
  reason = verdict.reason;
  ++reserved_;
  return Ready::kBatch;
}

// The number of queued items that are not reserved. A reservation counts as a full batch.
std::size_t Engine::unreserved_items() const {
  const std::size_t reserved_items = static_cast<std::size_t>(reserved_) * batch_limit_;
  return queue_.items() > reserved_items ? queue_.items() - reserved_items : 0;
}

// True if something is queued that is not reserved. `verdict` says when it should go to an idle worker.
bool Engine::due(TimePoint now, std::size_t idle_workers, BatchPolicy::Verdict& verdict) {
  if (queue_.grouped() && reserved_ > 0) return false;  // which group they take is not known; settle() asks again
  if (queue_.requests() > 0 && queue_.top_priority() < least_due_priority_) return false;
  const std::size_t items = unreserved_items();
  if (items == 0) {
    const std::size_t full_batches = (queue_.items() + batch_limit_ - 1) / batch_limit_;
    verdict = {.at = now, .reason = CloseReason::kIdle};
    return queue_.alone_requests() > reserved_ - static_cast<int>(full_batches);
  }
  ready_ = std::min(ready_, now);
  if (closed()) {
    verdict = {.at = now, .reason = CloseReason::kDrain};
  } else if (queue_.top_priority() > 0) {
    verdict = {.at = now, .reason = CloseReason::kPriority};
  } else {
    RequestQueue::Company company;
    if (queue_.grouped()) {
      company = plan_for(queue_.front(), queue_.limits()).company;
    } else {
      company.items = items;
      company.requests = static_cast<int>(static_cast<std::size_t>(queue_.requests()) * items / queue_.items());
      company.full = items >= batch_limit_;
    }
    verdict = policy_.due(policy_queue(company, idle_workers), now);
    if (slo_) {
      const TimePoint latest = slo_->latest_start(queue_.front().begun(), company.items);
      if (latest < verdict.at) verdict = {.at = latest, .reason = CloseReason::kSlo};
    }
    if (verdict.at <= now) return true;
    if (first_ahead_of(queue_.front(), now) != nullptr) {
      verdict = {.at = now, .reason = CloseReason::kFull};
    } else if (overdue(queue_.front(), now) && queue_.first_of_full_group() != nullptr) {
      verdict = {.at = now, .reason = CloseReason::kMaxLatency};
    }
  }
  return true;
}

// True if a worker with these live items may take the request that goes first.
bool Engine::has_room(const ItemWeights& live, const Request& first) const {
  return live.items == 0 || live.have_room_for(first.weight(first.dispatched), queue_.limits());
}

// The queue as the policy sees it, if only this part is considered.
BatchPolicy::Queue Engine::policy_queue(const RequestQueue::Company& company, std::size_t idle_workers) const {
  return {.items = company.full ? std::max(company.items, batch_limit_) : company.items,
          .requests = std::max(1, company.requests),
          .idle_workers = static_cast<int>(idle_workers),
          .oldest = queue_.oldest(),
          .ready = ready_};
}

void Engine::leave_idle(IdleWorker& worker) {
  std::erase(idle_, &worker);
  worker.state = IdleWorker::State::kAway;
}

// The end of an idle worker's sleep: when the queued items are due. If none are queued, the end of a possible linger,
// so that no caller has to wake the worker for a linger. Otherwise never.
TimePoint Engine::sleep_until(bool something_waits, TimePoint due, TimePoint now) const {
  if (something_waits) return due;
  const TimePoint watch_end = policy_.watch_end();
  return watch_end > now ? watch_end : TimePoint::max();
}

// The idle worker to wake, or none. If a batch is due, it is reserved for this worker. If a batch becomes due
// later, the worker is woken to sleep until then, unless another idle worker already does. One without room sleeps on.
WorkerWake Engine::worker_to_wake(TimePoint now) {
  if (idle_.empty()) return {};
  BatchPolicy::Verdict verdict;
  if (!due(now, idle_.size(), verdict)) return {};
  auto chosen = idle_.rbegin();
  while (chosen != idle_.rend() && !has_room((*chosen)->live, queue_.front())) ++chosen;
  if (chosen == idle_.rend()) return {};
  IdleWorker& last = **chosen;
  if (verdict.at <= now) {
    idle_.erase(std::next(chosen).base());
    last.state = IdleWorker::State::kReserved;
    last.reason = verdict.reason;
    ++reserved_;
    return {.waiter = &last.waiter, .behind = callers_before(last)};
  }
  for (const IdleWorker* worker : idle_) {
    if (worker->until <= verdict.at) return {};
  }
  last.until = verdict.at;
  return {.waiter = &last.waiter};
}

// Of the callers that are being woken, those that come before the worker, because they soon submit again.
std::optional<WakeQueue::Others> Engine::callers_before(const IdleWorker& worker) const {
  constexpr Duration kGatherBelow = std::chrono::microseconds(25);
  switch (worker.behind) {
    case IdleWorker::Behind::kNone:
      break;
    case IdleWorker::Behind::kFirst:
      return WakeQueue::Others::kFirst;
    case IdleWorker::Behind::kAll:
      return WakeQueue::Others::kAll;
    case IdleWorker::Behind::kAllOfFast:
      if (options_.policy == PolicyKind::kAdaptive && policy_.mean_service() < kGatherBelow)
        return WakeQueue::Others::kAll;
      break;
  }
  return std::nullopt;
}

}  // namespace service_streamer
