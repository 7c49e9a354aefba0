#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

#include "service_streamer/batching/engine.h"

// How workers get batches: waiting until one is due, waking a worker for it, and cutting it.

namespace service_streamer {
namespace {

// Reserves memory for one more range. False if there is none.
bool make_room(std::vector<RequestRange>& ranges) {
  if (ranges.size() < ranges.capacity()) return true;
  try {
    ranges.reserve(std::max<std::size_t>(2 * ranges.size(), 64));
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

}  // namespace

Engine::Ready Engine::poll(CloseReason& reason) {
  TimePoint until;
  MutexLock lock(mutex_);
  return reserve_if_due(idle_.size() + 1, Clock::now(), reason, until);
}

Engine::Ready Engine::wait_for_batch(Waiter& waiter, CloseReason& reason) {
  IdleWorker self(waiter);
  for (;;) {
    TimePoint until;
    const Ready ready = start_waiting(self, reason, until);
    if (ready != Ready::kNotYet) return ready;
    if (waiter.parker.park(until) == Parker::Wake::kInterrupted) {
      stop_waiting(self);
      return Ready::kInterrupted;
    }
  }
}

Engine::Ready Engine::start_waiting(IdleWorker& worker, CloseReason& reason, TimePoint& until) {
  MutexLock lock(mutex_);
  if (worker.state == IdleWorker::State::kReserved) {
    worker.state = IdleWorker::State::kAway;
    reason = worker.reason;
    return Ready::kBatch;
  }
  const bool again = worker.state == IdleWorker::State::kIdle;
  const Ready ready = reserve_if_due(idle_.size() + (again ? 0 : 1), Clock::now(), reason, until);
  if (ready == Ready::kNotYet) {
    worker.until = until;
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

bool Engine::cut(Batch& batch, CloseReason reason, EndedRequests& ended) {
  batch = {};
  try {
    batch.ranges.reserve(64);
  } catch (const std::bad_alloc&) {
    decline();  // otherwise the reservation would stay for ever
    throw;
  }
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    // Workers with a reservation count as idle: they are about to cut their batches, too.
    const BatchPolicy::Queue all = policy_queue(queue_.items(), idle_.size() + static_cast<std::size_t>(reserved_));
    const std::size_t share = policy_.share(all);
    fill(batch, share, false, now, ended, wakes);
    if (batch.items > 0) {
      batch.dispatched = now;
      batch.rerun = batch.ranges.front().request->alone;
      batch.reason = reason;
      if (batch.items >= batch_limit_) {
        batch.reason = batch_limit_ < options_.batch_size ? CloseReason::kSlo : CloseReason::kFull;
      }
      const bool from_policy = reason != CloseReason::kDrain && reason != CloseReason::kPriority;
      if (from_policy && share < batch_limit_ && queue_.requests() > 0) batch.reason = CloseReason::kShare;
      for (const RequestRange& range : batch.ranges) {
        range.request->batch_items = static_cast<std::uint32_t>(batch.items);
        range.request->reason = batch.reason;
      }
      batch.id = ++last_batch_;
      ++running_batches_;
      running_items_ += batch.items;
      if (recording()) [[unlikely]]
        log_cut(batch, now);
    }
    if (batch.items > 0 && !batch.rerun) {
      policy_.dispatched(now, batch.finishing);
      if (slo_) slo_->dispatched(now, batch.items);
      ++counters_.batches;
      counters_.items += batch.items;
      ++counters_.batch_sizes[batch.items];
      ++counters_.close_reasons[static_cast<std::size_t>(batch.reason)];
    }
    settle(now, wakes);
  }
  wakes.run();
  return batch.items > 0;
}

void Engine::decline() {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    --reserved_;
    wakes.worker = worker_to_wake(Clock::now());
  }
  wakes.run();
}

// --- under the mutex ---

// kBatch if a batch is due for a worker that is one of `idle_workers` idle ones, and is now reserved for it. kNotYet:
// the worker should sleep until `until`.
Engine::Ready Engine::reserve_if_due(std::size_t idle_workers, TimePoint now, CloseReason& reason, TimePoint& until) {
  if (exhausted()) return Ready::kClosed;
  BatchPolicy::Verdict verdict;
  const bool something_waits = due(now, idle_workers, verdict);
  if (!something_waits || verdict.at > now) {
    until = sleep_until(something_waits, verdict.at, now);
    return Ready::kNotYet;
  }
  reason = verdict.reason;
  ++reserved_;
  return Ready::kBatch;
}

// Takes a reserved batch from the queue: `limit` items, or fewer if memory runs out. With `whole`, no request is cut,
// and the last one may exceed the limit. If only requests that run alone are queued, takes one of them.
void Engine::fill(Batch& batch, std::size_t limit, bool whole, TimePoint now, EndedRequests& ended, Wakes& wakes) {
  before_event(now);
  --reserved_;
  end_hopeless(now, ended, wakes);
  while (queue_.requests() + (batch.items == 0 ? queue_.alone_requests() : 0) > 0 && batch.items < limit &&
         make_room(batch.ranges)) {
    Request& front = queue_.front();
    if (front.deadline <= now) {
      end(front, Outcome::kExpired, now, ended, wakes);
      continue;
    }
    if (front.dispatched == 0 && !front.alone) {
      times_.queue_time.add(now - front.arrived);
      front.taken = now;
    }
    batch.age = std::max(batch.age, now - front.arrived);
    const RequestRange range = queue_.take(whole || front.alone ? front.size : limit - batch.items);
    front.holds.fetch_add(1, std::memory_order_relaxed);
    batch.items += range.count;
    if (front.phase == Request::Phase::kDispatched) ++batch.finishing;
    batch.ranges.push_back(range);
    if (front.alone) break;
  }
  // If items stay and another worker is idle, ready_ stays too: these items have been waiting since then.
  if (queue_.requests() == 0 || idle_.empty()) ready_ = TimePoint::max();
}

// The number of queued items that are not reserved. A reservation counts as a full batch.
std::size_t Engine::unreserved_items() const {
  const std::size_t reserved_items = static_cast<std::size_t>(reserved_) * batch_limit_;
  return queue_.items() > reserved_items ? queue_.items() - reserved_items : 0;
}

// True if something is queued that is not reserved. `verdict` says when it should go to an idle worker.
bool Engine::due(TimePoint now, std::size_t idle_workers, BatchPolicy::Verdict& verdict) {
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
    const BatchPolicy::Queue queue = policy_queue(items, idle_workers);
    verdict = policy_.due(queue, now);
    if (slo_) {
      const TimePoint latest = slo_->latest_start(queue_.front().begun(), items);
      if (latest < verdict.at) verdict = {.at = latest, .reason = CloseReason::kSlo};
    }
  }
  return true;
}

// The queue as the policy sees it, if only `items` of its items are considered.
BatchPolicy::Queue Engine::policy_queue(std::size_t items, std::size_t idle_workers) const {
  const std::size_t requests =
      static_cast<std::size_t>(queue_.requests()) * items / std::max<std::size_t>(queue_.items(), 1);
  return {.items = items,
          .requests = std::max(1, static_cast<int>(requests)),
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

// The idle worker to wake, or nullptr. If a batch is due, it is reserved for this worker. If a batch becomes due
// later, the worker is woken to sleep until then, unless another idle worker already does.
Waiter* Engine::worker_to_wake(TimePoint now) {
  if (idle_.empty()) return nullptr;
  BatchPolicy::Verdict verdict;
  if (!due(now, idle_.size(), verdict)) return nullptr;
  IdleWorker& last = *idle_.back();
  if (verdict.at <= now) {
    idle_.pop_back();
    last.state = IdleWorker::State::kReserved;
    last.reason = verdict.reason;
    ++reserved_;
    return &last.waiter;
  }
  for (const IdleWorker* worker : idle_) {
    if (worker->until <= verdict.at) return nullptr;
  }
  last.until = verdict.at;
  return &last.waiter;
}

}  // namespace service_streamer
