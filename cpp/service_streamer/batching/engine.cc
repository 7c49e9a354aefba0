#include "service_streamer/batching/engine.h"

#include <algorithm>
#include <new>
#include <utility>

#include "service_streamer/base/random_id.h"

namespace service_streamer {
namespace {

Completion::Wait ended_by(Parker::Wake wake) {
  return wake == Parker::Wake::kTimeout ? Completion::Wait::kTimeout : Completion::Wait::kInterrupted;
}

}  // namespace

Engine::Engine(const EngineOptions& options, TenantShares tenants)
    : id_(random_id()),
      tenants_(std::move(tenants)),
      options_(options.validated()),
      policy_(options_.policy_options()),
      batch_limit_(options_.batch_size),
      queue_(options_.queue_options(), tenants_) {
  if (!tenants_.named.empty()) tenant_counts_["*"] = {};
  for (const auto& [name, share] : tenants_.named) tenant_counts_[name] = {};
  apply_target();
}

void WorkerWake::run() const {
  if (waiter == nullptr) return;
  behind ? WakeQueue::instance().wake_after(*behind, *waiter) : waiter->parker.unpark();
}

void Wakes::run() {
  worker.run();
  for (Waiter* waiter : others) waiter->parker.unpark();
}

// --- callers ---

Engine::Admission Engine::submit(Request& request) {
  return accept(request, false, nullptr);
}

Engine::Admission Engine::submit(Request& request, WorkerWake& later) {
  return accept(request, false, &later);
}

Engine::Admission Engine::submit_accepted(Request& request) {
  return accept(request, true, nullptr);
}

bool Engine::submit_accepted(std::span<Request* const> requests, EndedRequests& ended) {
  Wakes wakes;
  wakes.others.reserve(2 * requests.size());
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
      if (admission == Admission::kFull) {
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

Engine::Admission Engine::accept(Request& request, bool may_wait, WorkerWake* later) {
  Wakes wakes;
  Admission admission;
  {
    MutexLock lock(mutex_);
    if (closed()) return Admission::kClosed;
    admission = admit(request, may_wait, wakes);
    if (admission != Admission::kQueued && admission != Admission::kWaiting) return admission;
    (later != nullptr ? *later : wakes.worker) = worker_to_wake(request.arrived);
  }
  wakes.run();
  return admission;
}

Engine::Admission Engine::admit(Request& request, bool may_wait, Wakes& wakes) {
  Admission admission = Admission::kQueued;
  request.arrived = Clock::now();
  before_event(request.arrived);
  if (slo_ && misses_target(*slo_, request)) [[unlikely]]
    return Admission::kFull;
  TimePoint timer_at = request.watched ? TimePoint::max() : request.deadline;
  if (slo_) timer_at = std::min(timer_at, slo_->end_of_target(request.arrived));
  const bool wakes_timer = timer_at < timer_until_ && timer_ != nullptr;
  if (wakes_timer) wakes.others.reserve(wakes.others.size() + 1);  // a queued request needs no more memory
  if (queue_.has_room(request)) {
    queue_.push(request);
    policy_.arrived(request.arrived);
  } else if (may_wait || options_.overflow == Overflow::kBlock) {
    queue_.push_waiting(request);
    admission = Admission::kWaiting;
  } else {
    count(request, Outcome::kRefused);
    return queue_.tenant_has_room(request) ? Admission::kFull : Admission::kTenantFull;
  }
  live_.push_back(request);
  counters_.peak_requests = std::max(counters_.peak_requests, live_count_.fetch_add(1, std::memory_order_relaxed) + 1);
  ++counters_.submitted;
  if (recording()) [[unlikely]]
    log_request(LoggedEvent::Kind::kArrived, request, request.arrived);
  if (wakes_timer) {
    timer_until_ = timer_at;
    wakes.others.push_back(timer_);
  }
  return admission;
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
    request.admission = nullptr;
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

// --- life ---

void Engine::configure(const EngineChange& change) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    options_ = change.applied_to(options_);
    apply_target();
    apply_options();
    for (const IdleWorker* worker : idle_) wakes.others.push_back(&worker->waiter);  // they ask the changed policy
    if (timer_ != nullptr) wakes.others.push_back(timer_);
  }
  wakes.run();
}

void Engine::set_workers(int workers) {
  MutexLock lock(mutex_);
  EngineOptions changed = options_;
  changed.workers = workers;
  options_ = changed.validated();
  apply_target();
  apply_options();
}

EngineOptions Engine::options() const {
  MutexLock lock(mutex_);
  return options_;
}

void Engine::close(bool drain, EndedRequests& ended) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
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

// --- under the mutex ---

bool Engine::exhausted() const {
  return closed() && queue_.empty();
}

bool Engine::drained() const {
  return live_.empty() && running_batches_ == 0;
}

void Engine::end(Request& request, Outcome outcome, TimePoint now, EndedRequests& ended, Wakes& wakes) {
  before_event(now);
  queue_.remove(request);
  live_.erase(request);
  live_count_.fetch_sub(1, std::memory_order_relaxed);
  request.phase = Request::Phase::kEnded;
  request.outcome = outcome;
  request.ended = now;
  if (Waiter* sleeper = std::exchange(request.admission, nullptr)) wakes.others.push_back(sleeper);
  count(request, outcome);
  if (recording()) [[unlikely]]
    log_request(LoggedEvent::Kind::kEnded, request, now);
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
  if (closed() && live_.empty() && timer_ != nullptr) wakes.others.push_back(timer_);
}

}  // namespace service_streamer
