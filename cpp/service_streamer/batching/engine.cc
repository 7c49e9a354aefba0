#include "service_streamer/batching/engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "service_streamer/base/random_id.h"
#include "service_streamer/batching/batch_cut.h"

namespace service_streamer {
namespace {

Completion::Wait ended_by(Parker::Wake wake) {
  return wake == Parker::Wake::kTimeout ? Completion::Wait::kTimeout : Completion::Wait::kInterrupted;
}

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

// The next request of a batch, after there is none with `key`: of the buckets that join, which changes the key. nullptr
// if there is none.
Request* next_joining(const RequestQueue& queue, std::uint64_t& key, const BucketPolicy::Plan& plan) {
  Request* next = nullptr;
  for (std::uint64_t joining : {plan.joining, plan.partly}) {
    for (; next == nullptr && joining != 0; joining &= joining - 1) {
      key = (key & ~kBucketBits) | static_cast<std::uint64_t>(std::countr_zero(joining));
      next = queue.next_alike(key);
    }
  }
  return next;
}

}  // namespace

Engine::Engine(const EngineOptions& options, TenantShares tenants)
    : id_(random_id()),
      tenants_(std::move(tenants)),
      bounds_weight_(options.max_queue_weight != std::numeric_limits<double>::infinity()),
      options_(options.validated()),
      policy_(options_.policy_options()),
      batch_limit_(options_.batch_size),
      queue_(options_.queue_options(), tenants_) {
  if (!tenants_.named.empty()) tenant_counts_["*"] = {};
  for (const auto& [name, share] : tenants_.named) tenant_counts_[name] = {};
  apply_target();
}

// --- callers ---

Engine::Admission Engine::submit(Request& request, WorkerWake* later) {
  return accept(request, false, later);
}

Engine::Admission Engine::submit_accepted(Request& request) {
  return accept(request, true, nullptr);
}

bool Engine::submit_accepted(std::span<Request* const> requests, EndedRequests& ended) {
  Wakes wakes;
  for (Request* request : requests) weigh(*request);
  wakes.others.reserve(2 * requests.size());  // for each a worker and the thread that watches deadlines
  {
    MutexLock lock(mutex_);
    if (closed()) return false;
    for (Request* request : requests) {
      Admission admission = Admission::kFull;
      Outcome otherwise = Outcome::kRefused;
      try {
        admission = admit(*request, true, wakes);
      } catch (const std::bad_alloc&) {
        otherwise = Outcome::kLost;
      }
      if (admission != Admission::kQueued && admission != Admission::kWaiting) {
        request->phase = Request::Phase::kEnded;
        request->outcome = otherwise;
        request->ended = request->arrived;
        ended.push(*request);
      } else if (const WorkerWake worker = worker_to_wake(request->arrived); worker.waiter != nullptr) {
        wakes.others.push_back(worker.waiter);
      }
    }
  }
  wakes.run();
  return true;
}

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

Completion::Wait Engine::wait_for_room(Request& request, Waiter& waiter, TimePoint deadline) {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (request.phase != Request::Phase::kWaiting) return Completion::Wait::kDone;
      request.admission = &waiter;
    }
    const Parker::Wake wake = waiter.parker.park(deadline);
    MutexLock lock(mutex_);
    if (request.phase != Request::Phase::kWaiting) return Completion::Wait::kDone;
    request.admission = nullptr;  // the waiter may be gone when the request leaves the waiting room
    if (wake != Parker::Wake::kUnparked) return ended_by(wake);
  }
}

bool Engine::has_room(Request& request, Waiter& waiter) {
  MutexLock lock(mutex_);
  if (request.phase != Request::Phase::kWaiting) return true;
  request.admission = &waiter;
  return false;
}

bool Engine::end_early(Request& request, Outcome outcome, bool even_if_running, EndedRequests& ended) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    if (request.phase == Request::Phase::kNew || request.phase == Request::Phase::kEnded) return false;
    if (request.phase == Request::Phase::kDispatched && !even_if_running) return false;
    const TimePoint now = Clock::now();
    end(request, outcome, now, ended, wakes);
    settle(now, wakes);
  }
  wakes.run();
  return true;
}

bool Engine::running(const Request& request) const {
  MutexLock lock(mutex_);
  return request.phase != Request::Phase::kEnded && request.dispatched > 0;
}

Outcome Engine::outcome(const Request& request) const {
  MutexLock lock(mutex_);
  return request.outcome;
}

// --- workers ---

Engine::Ready Engine::poll(CloseReason& reason, const ItemWeights& live) {
  TimePoint until;
  MutexLock lock(mutex_);
  return reserve_if_due(idle_.size() + 1, live, reason, until);
}

Engine::Ready Engine::poll_ahead(CloseReason& reason) {
  MutexLock lock(mutex_);
  if (exhausted()) return Ready::kClosed;
  // The policy is not asked, because it expects the worker to be idle.
  const std::size_t items = unreserved_items();
  if (items == 0 || (queue_.grouped() && reserved_ > 0)) return Ready::kNotYet;
  const TimePoint now = Clock::now();
  const bool full = queue_.grouped() ? first_of_full_batch(now) != nullptr : items >= batch_limit_;
  if (!full && !closed()) return Ready::kNotYet;
  // A request of a higher priority would have to wait for two batches.
  if (!closed() && queue_.expects_higher_priority(now)) return Ready::kNotYet;
  reason = full ? CloseReason::kFull : CloseReason::kDrain;
  ++reserved_;
  return Ready::kBatch;
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
  if (worker.state == IdleWorker::State::kReserved) {  // since worker_to_wake(), which took it out of idle_
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

void Engine::wake_idle() {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    for (const IdleWorker* worker : idle_) wakes.others.push_back(&worker->waiter);
  }
  wakes.run();
}

bool Engine::cut(Batch& batch, CloseReason reason, EndedRequests& ended, const ItemWeights& live, std::uint32_t place) {
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
    end_hopeless(now, ended, wakes);  // before first_live(): no batch begins with a request that will be late
    Request* first = first_live(reason, now, ended, wakes);
    if (first != nullptr && !has_room(live, *first)) first = nullptr;
    BatchLimits limits = options_.queue_options().limits;
    if (first != nullptr) limits.items = share_of(*first, idle_workers);
    const double ceiling = ceilings_[place].limit();
    limits.lower(ceiling);
    const bool full = fill(batch, {.first = first, .limits = limits}, now, ended, wakes);
    if (batch.items > 0) {
      batch.dispatched = now;
      batch.whole.place = place;
      batch.rerun = batch.ranges.front().request->alone;
      batch.reason = reason;
      if (full || batch.items == options_.batch_size) {
        batch.reason = CloseReason::kFull;
      } else if (batch.items >= batch_limit_) {
        batch.reason = CloseReason::kSlo;
      }
      const bool by_memory =
          ceiling < most_without_ceiling() && (limits.weighs() ? full : static_cast<double>(batch.items + 1) > ceiling);
      const bool from_policy = reason != CloseReason::kDrain && reason != CloseReason::kPriority;
      if (by_memory) {
        batch.reason = CloseReason::kMemory;
      } else if (!full && from_policy && limits.items < batch_limit_ && alike_left(batch)) {
        batch.reason = CloseReason::kShare;
      }
      for (const RequestRange& range : batch.ranges) {
        range.request->batch_items = static_cast<std::uint32_t>(batch.items);
        range.request->reason = batch.reason;
      }
      batch.id = ++last_batch_;
      ++running_batches_;
      running_items_ += batch.items;
      if (recorder_.recording()) [[unlikely]]
        recorder_.log_cut(batch, now, mutex_);
    }
    if (batch.items > 0 && !batch.rerun) {
      policy_.dispatched(now, batch.finishing);
      if (slo_) slo_->dispatched(now, batch.items);
      ++counters_.batches;
      counters_.items += batch.items;
      ++counters_.batch_sizes[batch.items];
      ++counters_.close_reasons[static_cast<std::size_t>(batch.reason)];
      const bool others = queue_.grouped() && queue_.requests() > 0 && !alike_left(batch);
      if (others && batch.reason != CloseReason::kFull) ++counters_.other_keys;
    }
    settle(now, wakes);
  }
  wakes.run();
  return batch.items > 0;
}

void Engine::add_place(std::uint32_t place) {
  MutexLock lock(mutex_);
  if (place < ceilings_.size()) return;
  ceilings_.resize(place + 1);
  apply_changes();
}

void Engine::learn(const BatchSize& whole, const MemoryLesson& lesson) {
  if (lesson.failed == 0) return;
  MutexLock lock(mutex_);
  before_event(Clock::now());
  ++counters_.out_of_memory;
  if (lesson.passed == 0 || whole.load <= 0) return;                          // a limit of 0 could not climb
  const double load_of_item = whole.load / static_cast<double>(whole.items);  // parts are counted in items
  ceilings_[whole.place].failed(load_of_item * static_cast<double>(lesson.failed),
                                load_of_item * static_cast<double>(lesson.passed));
  apply_changes();
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

void Engine::complete(Batch& batch, Outcome outcome, EndedRequests& ended, ReleasedRequests& released) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    if (!batch.rerun) note_completed(batch, now);
    --running_batches_;
    running_items_ -= batch.items;
    if (recorder_.recording()) [[unlikely]]
      recorder_.log_completed(batch, outcome, now, mutex_);
    note_memory(batch, outcome);
    const std::uint64_t answered_before = counters_.completed;
    for (const RequestRange& range : batch.ranges) {
      if (range.postponed) {
        queue_alone(range, now, ended, released, wakes);
      } else {
        put_back(range, range.failed ? Outcome::kFailed : outcome, now, ended, released, wakes);
      }
    }
    if (batch.rerun || batch.isolated) counters_.isolated += counters_.completed - answered_before;
    end_hopeless(now, ended, wakes);  // before settle(), which wakes a worker for what is still queued
    settle(now, wakes);
  }
  batch = {};  // frees the ranges without the lock
  wakes.run();
}

void Engine::split(Batch& batch, const BatchCut& cut, Batch& first) {
  first = batch;  // before the lock, and before anything has changed: it allocates
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
  if (recorder_.recording()) [[unlikely]]
    recorder_.log_split(first, batch, now, mutex_);
}

void Engine::join(Batch& batch, Batch& first) {
  batch.items += first.items;
  put_before(batch.ranges, first.ranges, [](const RequestRange& range) {
    range.request->holds.fetch_sub(1, std::memory_order_relaxed);  // split() added one for the second half
  });
  const Batch joined = std::exchange(first, {});
  MutexLock lock(mutex_);
  --running_batches_;
  if (recorder_.recording()) [[unlikely]]
    recorder_.log_joined(joined, Clock::now(), mutex_);
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

// --- forwarding ---

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

// --- deadlines ---

TimePoint Engine::expire_arrived_before(TimePoint time, EndedRequests& ended) {
  Wakes wakes;
  TimePoint oldest = TimePoint::max();
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    while (!live_.empty() && live_.first()->arrived < time) {
      end(*live_.first(), Outcome::kExpired, now, ended, wakes);
    }
    if (!live_.empty()) oldest = live_.first()->arrived;
    if (ended.count > 0) settle(now, wakes);
  }
  wakes.run();
  return oldest;
}

// --- life ---

void Engine::configure(const EngineChange& change) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    options_ = change.applied_to(options_);
    apply_changes();
    for (const IdleWorker* worker : idle_) wakes.others.push_back(&worker->waiter);  // they ask the changed policy
    deadline_timer_.wake(wakes, mutex_);
  }
  wakes.run();
}

EngineOptions Engine::options() const {
  MutexLock lock(mutex_);
  return options_;
}

void Engine::set_workers(int workers) {
  MutexLock lock(mutex_);
  EngineOptions changed = options_;
  changed.workers = workers;
  options_ = changed.validated();
  apply_changes();
}

void Engine::close(bool drain, EndedRequests& ended) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    // Under the mutex: a request that was accepted before is in live_ now, and no other one follows.
    closed_.store(true, std::memory_order_relaxed);
    drains_ = drains_ && drain;
    const TimePoint now = Clock::now();
    for (Request *request = live_.first(), *next = nullptr; request != nullptr && !drain; request = next) {
      next = request->next_live;
      if (request->phase != Request::Phase::kDispatched) end(*request, Outcome::kClosed, now, ended, wakes);
    }
    for (const IdleWorker* worker : idle_) wakes.others.push_back(&worker->waiter);
    settle(now, wakes);
  }
  wakes.run();
}

void Engine::abort(Outcome outcome, EndedRequests& ended) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    while (!live_.empty()) end(*live_.first(), outcome, now, ended, wakes);
    settle(now, wakes);
  }
  wakes.run();
}

Completion::Wait Engine::wait_until_drained(Waiter& waiter, TimePoint deadline) {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (drained()) return Completion::Wait::kDone;
      drain_waiters_.push_back(&waiter);
    }
    const Parker::Wake wake = waiter.parker.park(deadline);
    MutexLock lock(mutex_);
    std::erase(drain_waiters_, &waiter);
    if (drained()) return Completion::Wait::kDone;
    if (wake != Parker::Wake::kUnparked) return ended_by(wake);
  }
}

EngineStats Engine::stats(TimePoint now) const {
  using std::chrono::seconds;
  EngineStats stats;
  StatsHistory::Snapshot start_of_10s, start_of_minute;
  {
    MutexLock lock(mutex_);
    start_of_10s = history_.at_start_of(seconds(10), now, counters_, times_);
    start_of_minute = history_.at_start_of(seconds(60), now, counters_, times_);
    stats.workers = options_.workers;
    stats.idle_workers = static_cast<int>(idle_.size());
    stats.queued_items = queue_.items() + queue_.alone_items();
    stats.queued_weight = queue_.weight();
    stats.queued_requests = queue_.requests() + queue_.alone_requests();
    stats.waiting_requests = queue_.waiting();
    stats.tenants = queue_.largest_tenants(EngineStats::kTenants);
    std::size_t others = queue_.items();
    for (const auto& [name, counts] : tenant_counts_) {
      TenantStats& tenant = stats.tenant_stats[name];
      tenant = {.queued_items = queue_.items_of(name), .counts = counts};
      others -= tenant.queued_items;
    }
    if (!tenant_counts_.empty()) stats.tenant_stats["*"].queued_items += others;
    stats.running_items = running_items_;
    stats.running_batches = running_batches_;
    stats.batch_limit = batch_limit_;
    for (std::size_t place = 0; place < places(); ++place) {
      const double limit = ceilings_[place].limit();
      if (limit != MemoryCeiling::kNone)
        stats.memory_limits[place] = queue_.limits().weighs() ? limit : std::floor(limit);
    }
    if (slo_) stats.least_service = slo_->least_service();
    stats.counters = counters_;
  }
  // Without the mutex: each summary reads hundreds of buckets, which are atomics.
  stats.engine_id = id_;
  stats.uptime = now - created_;
  stats.queue_time = times_.queue_time.summary();
  stats.service_time = times_.service_time.summary();
  stats.delivery_time = times_.delivery_time.summary();
  stats.latency = times_.latency.summary();
  stats.last_10s = stats_since(start_of_10s, now, stats.counters, times_);
  stats.last_minute = stats_since(start_of_minute, now, stats.counters, times_);
  return stats;
}

void Engine::delivered(const Request& request, TimePoint now) {
  replied(request, now);
  times_.delivery_time.add(now - request.ended);
}

void Engine::replied(const Request& request, TimePoint now) {
  if (now >= next_second_.load(std::memory_order_relaxed)) {
    MutexLock lock(mutex_);
    before_event(now);
  }
  if (request.outcome == Outcome::kAnswered) times_.latency.add(now - request.begun());
}

double Engine::retry_after(const Request& refused) const {
  MutexLock lock(mutex_);
  if (policy_.mean_service() == Duration::zero()) return seconds(options_.max_latency);
  double batches = static_cast<double>(queue_.items_before(refused)) / std::max(policy_.mean_batch_size(), 1.0);
  if (mean_weight_ > 0) batches = std::max(batches, queue_.weight_before(refused) / mean_weight_);
  return batches * seconds(policy_.mean_service()) / options_.workers;
}

// --- admission ---

Engine::Admission Engine::accept(Request& request, bool may_wait, WorkerWake* later) {
  Wakes wakes;
  Admission admission;
  weigh(request);
  {
    MutexLock lock(mutex_);
    if (closed()) return Admission::kClosed;
    admission = admit(request, may_wait, wakes);
    if (admission != Admission::kQueued && admission != Admission::kWaiting) return admission;
    (later != nullptr ? *later : wakes.worker) = worker_to_wake(request.arrived);
  }
  wakes.run();  // without the mutex, for which the woken threads would wait otherwise
  return admission;
}

// Before the mutex is taken: it looks at every item.
void Engine::weigh(Request& request) const {
  if (bounds_weight_) request.queued_weight = request.weight_of(0, request.size);
}

Engine::Admission Engine::admit(Request& request, bool may_wait, Wakes& wakes) {
  Admission admission = Admission::kQueued;
  request.arrived = Clock::now();
  before_event(request.arrived);
  if (slo_ && misses_target(*slo_, request)) [[unlikely]]
    return Admission::kFull;
  TimePoint timer_at = request.watched ? TimePoint::max() : request.deadline;
  if (slo_) timer_at = std::min(timer_at, slo_->end_of_target(request.arrived));
  const bool wakes_timer = deadline_timer_.sleeps_past(timer_at, mutex_);
  if (wakes_timer) wakes.others.reserve(wakes.others.size() + 1);  // a queued request needs no more memory
  if (queue_.has_room(request)) {
    queue_.push(request);
    policy_.arrived(request.arrived);
  } else if (!slo_ && (may_wait || options_.overflow == Overflow::kBlock)) {
    queue_.push_waiting(request);
    admission = Admission::kWaiting;
  } else {
    if (may_wait) request.retry_after = static_cast<float>(seconds(options_.slo));
    count(request, Outcome::kRefused);
    if (!queue_.tenant_has_room(request)) return Admission::kTenantFull;
    return queue_.weight_has_room(request) ? Admission::kFull : Admission::kWeightFull;
  }
  live_.push_back(request);
  counters_.peak_requests = std::max(counters_.peak_requests, live_count_.fetch_add(1, std::memory_order_relaxed) + 1);
  ++counters_.submitted;
  if (recorder_.recording()) [[unlikely]]
    recorder_.log_request(LoggedEvent::Kind::kArrived, request, request.arrived, mutex_);
  if (wakes_timer) deadline_timer_.wake_for(timer_at, wakes, mutex_);
  return admission;
}

// --- under the mutex: when a batch is due, and for which worker ---

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

// The number of queued items that are not reserved. A reservation counts as a full batch.
std::size_t Engine::unreserved_items() const {
  const std::size_t reserved_items = static_cast<std::size_t>(reserved_) * batch_limit_;
  return queue_.items() > reserved_items ? queue_.items() - reserved_items : 0;
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

void Engine::leave_idle(IdleWorker& worker) {
  std::erase(idle_, &worker);
  worker.state = IdleWorker::State::kAway;
}

// --- under the mutex: which requests are in a batch ---

// The request that a reserved batch begins with; nullptr: nothing is queued. Ends expired ones on the way.
Request* Engine::first_live(CloseReason reason, TimePoint now, EndedRequests& ended, Wakes& wakes) {
  while (queue_.requests() > 0 || queue_.alone_requests() > 0) {
    Request* first = reason == CloseReason::kFull ? first_of_full_batch(now) : nullptr;
    if (first == nullptr) first = &queue_.front();
    if (first->deadline > now) return first;
    end(*first, Outcome::kExpired, now, ended, wakes);
  }
  return nullptr;
}

// The request that a batch which cannot grow begins with; nullptr: there is none.
Request* Engine::first_of_full_batch(TimePoint now) {
  Request& front = queue_.front();
  return plan_for(front, queue_.limits()).company.full ? &front : first_ahead_of(front, now);
}

// The same if the group of the front is not enough for a batch. Another group must not delay the front for long, nor go
// before one of a higher priority.
Request* Engine::first_ahead_of(const Request& front, TimePoint now) {
  if (!queue_.grouped() || overdue(front, now)) return nullptr;
  Request* first = queue_.first_of_full_group();
  return first != nullptr && first->priority >= front.priority ? first : nullptr;
}

// True if no other group goes before the request any more, even if the policy would still wait for others.
bool Engine::overdue(const Request& request, TimePoint now) const {
  return now - request.arrived >= options_.max_latency;
}

// The most items of a batch that begins with this request. Of the idle workers, others take the other groups.
std::size_t Engine::share_of(const Request& first, std::size_t idle_workers) {
  const std::size_t others = std::max(queue_.groups(), 1) - 1;
  return policy_.share(policy_queue(queue_.company_of(first), idle_workers > others ? idle_workers - others : 1));
}

// The batch that begins with this request. Its later items count, too, although they are not in a group yet.
BucketPolicy::Plan Engine::plan_for(const Request& first, const BatchLimits& limits) {
  const RequestQueue::Company company = queue_.company_of(first);
  const std::uint64_t key = first.key(first.dispatched);
  const std::size_t number = key & kBucketBits;
  if (number >= options_.buckets || !queue_.grouped() || first.alone || company.full) return {.company = company};
  std::array<RequestQueue::Company, kMaxBuckets> buckets;
  for (std::size_t i = 0; i < options_.buckets; ++i) buckets[i] = queue_.company_of((key & ~kBucketBits) | i);
  if (first.run_end < first.size) --buckets[number].requests;
  const std::size_t seen = std::min<std::size_t>(first.size, first.run_end + limits.items);
  for (std::uint32_t i = first.run_end; i < first.size && (first.key(i) & ~kBucketBits) == (key & ~kBucketBits); ++i) {
    RequestQueue::Company& later = buckets[first.key(i) & kBucketBits];
    later.full = later.full || i >= seen;
    if (i >= seen) break;
    ++later.items;
    later.sum += first.weight(i);
    later.heaviest = std::max(later.heaviest, first.weight(i));
  }
  return buckets_.plan({buckets.data(), options_.buckets}, number, limits);
}

// True if a request is queued that could be in the batch.
bool Engine::alike_left(const Batch& batch) const {
  const RequestRange& range = batch.ranges.front();
  return queue_.next_alike(range.request->key(range.begin)) != nullptr;
}

// Takes a reserved batch from the queue, or less if memory runs out. A request that runs alone is the only one. Returns
// true if the next item of the same key was too heavy.
bool Engine::fill(Batch& batch, const Fill& how, TimePoint now, EndedRequests& ended, Wakes& wakes) {
  before_event(now);
  --reserved_;
  BatchLoad load(how.limits);
  std::uint64_t key = how.first != nullptr ? how.first->key(how.first->dispatched) : 0;
  const bool plans = options_.buckets > 0 && how.first != nullptr;
  const BucketPolicy::Plan plan = plans ? plan_for(*how.first, how.limits) : BucketPolicy::Plan{};
  bool too_heavy = false;
  Request* next = how.first;
  while (next != nullptr && batch.items < how.limits.items && make_room(batch.ranges)) {
    if (next->priority < least_due_priority_) break;
    const bool alone = next->alone;
    if (next->deadline <= now) {
      end(*next, Outcome::kExpired, now, ended, wakes);
    } else {
      const std::uint32_t count = how.whole || alone ? next->size : load.room_for(*next);
      too_heavy = count == 0;
      if (too_heavy) break;
      if (next->dispatched == 0 && !alone) {
        times_.queue_time.add(now - next->arrived);
        next->taken = now;
      }
      batch.age = std::max(batch.age, now - next->arrived);
      const RequestRange range = queue_.take(*next, count);
      load.add(range);
      batch.items += count;
      if (!batch.ranges.empty() && follows(batch.ranges.back(), range)) {
        batch.ranges.back().count += count;
      } else {
        batch.ranges.push_back(range);
        next->holds.fetch_add(1, std::memory_order_relaxed);
      }
      if (next->phase == Request::Phase::kDispatched) ++batch.finishing;
    }
    if (alone) break;
    next = queue_.next_alike(key);
    if (next == nullptr) next = next_joining(queue_, key, plan);
  }
  if (batch.items > 0 && !batch.ranges.front().request->alone) {
    constexpr double kNewest = 1.0 / 8;
    mean_weight_ += (mean_weight_ > 0 ? kNewest : 1) * (load.sum() - mean_weight_);
    counters_.weight += load.sum();
    counters_.padded_weight += options_.buckets > 0 ? load.padded() : load.weight();
    batch.padded = load.padded();
  }
  batch.whole = {.items = batch.items, .load = load.size()};
  // If items stay and another worker is idle, ready_ stays too: these items have been waiting since then.
  if (queue_.requests() == 0 || idle_.empty()) ready_ = TimePoint::max();
  return too_heavy;
}

// --- under the mutex: batches that are back ---

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

// A batch that was as large as the memory of its worker allows, and ran at once.
void Engine::note_memory(const Batch& batch, Outcome outcome) {
  if (batch.reason != CloseReason::kMemory || batch.rerun || batch.isolated || outcome != Outcome::kAnswered) return;
  if (std::ranges::any_of(batch.ranges, &RequestRange::failed)) return;
  MemoryCeiling& ceiling = ceilings_[batch.whole.place];
  const double before = ceiling.limit();
  ceiling.passed(batch.whole.load, most_without_ceiling(), queue_.limits().weighs() ? 0 : 1);
  if (ceiling.limit() != before) apply_changes();
}

double Engine::most_without_ceiling() const {
  return queue_.limits().weighs() ? options_.max_weight : static_cast<double>(options_.batch_size);
}

// Those that have a worker. There may have been more, before set_workers().
std::size_t Engine::places() const {
  return std::min(ceilings_.size(), static_cast<std::size_t>(options_.workers));
}

// What a batch may hold. One that is larger fits nowhere.
BatchLimits Engine::largest_limits() const {
  BatchLimits limits = options_.queue_options().limits;
  limits.lower(std::ranges::max(std::span(ceilings_).first(places()), {}, &MemoryCeiling::limit).limit());
  return limits;
}

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

void Engine::queue_again(Request& request, ReleasedRequests& released) {
  const bool ended_before = request.phase == Request::Phase::kEnded;
  if (request.drop_hold()) released.push(request);
  if (!ended_before) queue_.push_again(request);
}

// --- under the mutex: the target ---

// With a target. A request of a higher priority than all others goes before them.
bool Engine::misses_target(SloPolicy& slo, Request& request) {
  const bool first = queue_.requests() == 0 || request.priority > queue_.top_priority();
  const Duration waited = request.arrived - request.begun();
  const Duration late = slo.refuse(request.arrived, waited, first ? 0 : queue_.items_before(request), request.size);
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

void Engine::apply_target() {
  const bool has_target = options_.slo > Duration::zero();
  deadline_timer_.set_target(has_target, mutex_);
  if (!has_target) {
    slo_.reset();
    return;
  }
  SloPolicy::Options target = options_.slo_options();
  target.batch_size = largest_limits().items;
  slo_ ? slo_->configure(target) : static_cast<void>(slo_.emplace(target));
}

// Called when the options or a ceiling have changed.
void Engine::apply_changes() {
  apply_target();
  apply_options();
}

// Called when the limit of SloPolicy has changed, too.
void Engine::apply_options() {
  BatchLimits limits = largest_limits();
  if (slo_) limits.items = slo_->batch_limit();
  batch_limit_ = limits.items;
  queue_.set_limits(limits);
  BatchPolicy::Options limited = options_.policy_options();
  limited.batch_size = batch_limit_;
  policy_.configure(limited);
}

// --- under the mutex: the end of requests ---

void Engine::end_late(TimePoint now, EndedRequests& ended, Wakes& wakes) {
  for (Request *request = live_.first(), *next = nullptr; request != nullptr; request = next) {
    next = request->next_live;
    if (request->deadline <= now) end(*request, Outcome::kExpired, now, ended, wakes);
  }
  end_hopeless(now, ended, wakes);
}

// When end_late() has to be called again.
TimePoint Engine::next_deadline(TimePoint now) {
  TimePoint next = next_hopeless(now);
  for (const Request* request = live_.first(); request != nullptr; request = request->next_live) {
    if (!request->watched) next = std::min(next, request->deadline);
  }
  return next;
}

void Engine::end(Request& request, Outcome outcome, TimePoint now, EndedRequests& ended, Wakes& wakes) {
  before_event(now);  // before it is counted
  queue_.remove(request);
  live_.erase(request);
  live_count_.fetch_sub(1, std::memory_order_relaxed);
  request.phase = Request::Phase::kEnded;
  request.outcome = outcome;
  request.ended = now;
  if (Waiter* sleeper = std::exchange(request.admission, nullptr)) wakes.others.push_back(sleeper);
  count(request, outcome);
  if (recorder_.recording()) [[unlikely]]
    recorder_.log_request(LoggedEvent::Kind::kEnded, request, now, mutex_);
  ended.push(request);
}

void Engine::count(const Request& request, Outcome outcome) {
  std::uint64_t EventCounts::* const counter = counter_of(outcome).count;
  ++(counters_.*counter);
  if (tenant_counts_.empty()) return;
  auto found = tenant_counts_.find(request.tenant());
  if (found == tenant_counts_.end()) found = tenant_counts_.find("*");
  ++(found->second.*counter);
}

// Called after any change that may have made room, made a batch due, or ended the last request.
void Engine::settle(TimePoint now, Wakes& wakes) {
  while (Request* request = queue_.admit()) {
    policy_.arrived(now);
    if (Waiter* sleeper = std::exchange(request->admission, nullptr)) wakes.others.push_back(sleeper);
  }
  if (queue_.requests() == 0) ready_ = TimePoint::max();
  wakes.worker = worker_to_wake(now);
  if (exhausted()) {
    for (const IdleWorker* worker : idle_) wakes.others.push_back(&worker->waiter);
  }
  if (drained()) {
    wakes.others.insert(wakes.others.end(), drain_waiters_.begin(), drain_waiters_.end());
  }
  if (finished()) deadline_timer_.wake(wakes, mutex_);
}

bool Engine::exhausted() const {
  return closed() && queue_.empty();
}

bool Engine::drained() const {
  return live_.empty() && running_batches_ == 0;
}

bool Engine::finished() const {
  return closed() && live_.empty();
}

}  // namespace service_streamer
