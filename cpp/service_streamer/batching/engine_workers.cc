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
    const std::size_t idle_workers = idle_.size() + static_cast<std::size_t>(reserved_);
    const Request* first = first_for_batch(reason);
    const RequestQueue::Company company = first != nullptr ? queue_.company_of(*first) : RequestQueue::Company{};
    BatchLimits limits = options_.queue_options().limits;
    limits.items = policy_.share(policy_queue(company, idle_workers));
    const bool full = fill(batch, {.limits = limits, .reason = reason}, now, ended, wakes);
    if (batch.items > 0) {
      batch.dispatched = now;
      batch.rerun = batch.ranges.front().request->alone;
      batch.reason = reason;
      if (full || batch.items == options_.batch_size) batch.reason = CloseReason::kFull;
      const bool from_policy = reason != CloseReason::kDrain && reason != CloseReason::kPriority;
      if (from_policy && limits.items < options_.batch_size && company.items > batch.items) {
        batch.reason = CloseReason::kShare;
      }
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

// The request that a reserved batch begins with; nullptr: nothing is queued.
Request* Engine::first_for_batch(CloseReason reason) {
  if (queue_.requests() == 0 && queue_.alone_requests() == 0) return nullptr;
  Request& front = queue_.front();
  if (reason != CloseReason::kFull || queue_.company_of(front).full) return &front;
  Request* full = queue_.front_of_full_group();
  return full != nullptr ? full : &front;
}

// Takes a reserved batch from the queue, or less if memory runs out. If only requests that run alone are queued, takes
// one of them. Returns true if the next item of the same key was too heavy.
bool Engine::fill(Batch& batch, const Fill& how, TimePoint now, EndedRequests& ended, Wakes& wakes) {
  before_event(now);
  --reserved_;
  BatchLoad load(how.limits);
  std::uint64_t key = 0;
  bool too_heavy = false;
  while (batch.items < how.limits.items && make_room(batch.ranges)) {
    Request* next = batch.items == 0 ? first_for_batch(how.reason) : queue_.next_alike(key);
    if (next == nullptr) break;
    if (next->deadline <= now) {
      end(*next, Outcome::kExpired, now, ended, wakes);
      continue;
    }
    const std::uint32_t count = how.whole || next->alone ? next->size : load.room_for(*next);
    too_heavy = count == 0;
    if (too_heavy) break;
    if (next->dispatched == 0 && !next->alone) {
      times_.queue_time.add(now - next->arrived);
      next->taken = now;
    }
    key = next->key(next->dispatched);
    batch.age = std::max(batch.age, now - next->arrived);
    batch.ranges.push_back(queue_.take(*next, count));
    load.add(batch.ranges.back());
    next->holds.fetch_add(1, std::memory_order_relaxed);
    batch.items += count;
    if (next->phase == Request::Phase::kDispatched) ++batch.finishing;
    if (next->alone) break;
  }
  // If items stay and another worker is idle, ready_ stays too: these items have been waiting since then.
  if (queue_.requests() == 0 || idle_.empty()) ready_ = TimePoint::max();
  return too_heavy;
}

// The number of queued items that are not reserved. A reservation counts as a full batch.
std::size_t Engine::unreserved_items() const {
  const std::size_t reserved_items = static_cast<std::size_t>(reserved_) * options_.batch_size;
  return queue_.items() > reserved_items ? queue_.items() - reserved_items : 0;
}

// True if something is queued that is not reserved. `verdict` says when it should go to an idle worker.
bool Engine::due(TimePoint now, std::size_t idle_workers, BatchPolicy::Verdict& verdict) {
  if (queue_.grouped() && reserved_ > 0) return false;  // which group they take is not known; settle() asks again
  const std::size_t items = unreserved_items();
  if (items == 0) {
    const std::size_t full_batches = (queue_.items() + options_.batch_size - 1) / options_.batch_size;
    verdict = {.at = now, .reason = CloseReason::kIdle};
    return queue_.alone_requests() > reserved_ - static_cast<int>(full_batches);
  }
  ready_ = std::min(ready_, now);
  if (closed()) {
    verdict = {.at = now, .reason = CloseReason::kDrain};
  } else if (queue_.top_priority() > 0) {
    verdict = {.at = now, .reason = CloseReason::kPriority};
  } else {
    RequestQueue::Company company = queue_.company_of(queue_.front());
    if (!queue_.grouped()) {
      company.requests = static_cast<int>(static_cast<std::size_t>(company.requests) * items / company.items);
      company.items = items;
      company.full = items >= options_.batch_size;
    }
    verdict = policy_.due(policy_queue(company, idle_workers), now);
    if (verdict.at > now && queue_.front_of_full_group() != nullptr)
      verdict = {.at = now, .reason = CloseReason::kFull};
  }
  return true;
}

// The queue as the policy sees it, if only this part is considered.
BatchPolicy::Queue Engine::policy_queue(const RequestQueue::Company& company, std::size_t idle_workers) const {
  return {.items = company.full ? std::max(company.items, options_.batch_size) : company.items,
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
