#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

#include "service_streamer/batching/engine.h"

// What workers wait for: when a batch is due, who is woken for it, and cutting it.

namespace service_streamer {
namespace {

// Whether there is room for one more part, or memory for it.
bool make_room(std::vector<RequestRange>& parts) {
  if (parts.size() < parts.capacity()) return true;
  try {
    parts.reserve(std::max<std::size_t>(2 * parts.size(), 64));
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

}  // namespace

Engine::Ready Engine::poll(CloseReason& reason) {
  TimePoint until;
  MutexLock lock(mutex_);
  return look(idle_.size() + 1, Clock::now(), reason, until);
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
  const Ready ready = look(idle_.size() + (again ? 0 : 1), Clock::now(), reason, until);
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
    wakes.worker = worker_to_wake(Clock::now());  // also for the time that it slept to
  }
  wakes.run();
}

bool Engine::cut(Batch& batch, CloseReason reason, EndedRequests& ended) {
  batch = {};
  try {
    batch.parts.reserve(64);
  } catch (const std::bad_alloc&) {
    decline();  // or what is reserved would never be due again
    throw;
  }
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    // The others that were woken are about to ask, too.
    const BatchPolicy::Queue all = waiting(queue_.items(), idle_.size() + static_cast<std::size_t>(reserved_));
    const std::size_t most = policy_.share(all);
    fill(batch, most, false, now, ended, wakes);
    if (batch.items > 0) {
      batch.dispatched = now;
      batch.rerun = batch.parts.front().request->alone;
      batch.reason = reason;
      if (batch.items == options_.batch_size) batch.reason = CloseReason::kFull;
      const bool waited_for = reason != CloseReason::kDrain && reason != CloseReason::kPriority;
      if (waited_for && most < options_.batch_size && queue_.requests() > 0) batch.reason = CloseReason::kShare;
      ++running_batches_;
      running_items_ += batch.items;
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

// What a worker, one of so many idle ones, is to do. kBatch: reserved for it.
Engine::Ready Engine::look(std::size_t idle_workers, TimePoint now, CloseReason& reason, TimePoint& until) {
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

// Takes from the queue what was promised to a worker: until there are `limit` items, or, `whole`, no more requests than that
// takes; or as many as there is memory for. Or one request that runs alone.
void Engine::fill(Batch& batch, std::size_t limit, bool whole, TimePoint now, EndedRequests& ended, Wakes& wakes) {
  --reserved_;
  while (queue_.requests() + (batch.items == 0 ? queue_.alone_requests() : 0) > 0 && batch.items < limit &&
         make_room(batch.parts)) {
    Request& front = queue_.front();
    if (front.deadline <= now) {
      end(front, Outcome::kExpired, now, ended, wakes);
      continue;
    }
    if (front.dispatched == 0 && !front.alone) queue_time_.add(now - front.arrived);
    batch.age = std::max(batch.age, now - front.arrived);
    const RequestRange part = queue_.take(whole || front.alone ? front.size : limit - batch.items);
    front.holds.fetch_add(1, std::memory_order_relaxed);
    batch.items += part.count;
    if (front.phase == Request::Phase::kDispatched) ++batch.finishing;
    batch.parts.push_back(part);
    if (front.alone) break;
  }
  // What stays, for another worker that is idle already, has waited for company since then.
  if (queue_.requests() == 0 || idle_.empty()) ready_ = TimePoint::max();
}

// How many of the items that wait no woken worker will take: each counts as taking a full batch.
std::size_t Engine::unpromised() const {
  const std::size_t promised = static_cast<std::size_t>(reserved_) * options_.batch_size;
  return queue_.items() > promised ? queue_.items() - promised : 0;
}

// Whether there is anything that no woken worker will take, and when it should go to one of the idle ones.
bool Engine::due(TimePoint now, std::size_t idle_workers, BatchPolicy::Verdict& verdict) {
  const std::size_t items = unpromised();
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
    verdict = policy_.due(waiting(items, idle_workers), now);
  }
  return true;
}

// Some of the items that wait, as the policy sees them.
BatchPolicy::Queue Engine::waiting(std::size_t items, std::size_t idle_workers) const {
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

// An idle worker sleeps until what waits is due, or while callers may come back until the time to stop lingering for them,
// so that nobody has to wake it for a linger; otherwise for ever.
TimePoint Engine::sleep_until(bool something_waits, TimePoint due, TimePoint now) const {
  if (something_waits) return due;
  const TimePoint watch_end = policy_.watch_end();
  return watch_end > now ? watch_end : TimePoint::max();
}

// The idle worker that must hear of what waits: one to take it, or, before it is due, one that would sleep too long.
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
