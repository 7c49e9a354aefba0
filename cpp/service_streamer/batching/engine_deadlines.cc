#include <algorithm>

#include "service_streamer/batching/engine.h"

// The deadlines of requests that no blocked caller watches, and the target.

namespace service_streamer {

Engine::Ready Engine::wait_for_deadline(Waiter& waiter) {
  TimePoint until;
  {
    MutexLock lock(mutex_);
    if (closed() && live_.empty()) return Ready::kClosed;
    has_timer_thread_ = true;
    timer_ = &waiter;
    until = timer_until_ = next_deadline(Clock::now());
  }
  const Parker::Wake wake = waiter.parker.park(until);
  MutexLock lock(mutex_);
  timer_ = nullptr;
  if (closed() && live_.empty()) return Ready::kClosed;
  return wake == Parker::Wake::kInterrupted ? Ready::kInterrupted : Ready::kBatch;
}

void Engine::leave_deadlines() {
  MutexLock lock(mutex_);
  has_timer_thread_ = false;
}

void Engine::expire(EndedRequests& ended) {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    end_expired(now, ended, wakes);
    end_hopeless(now, ended, wakes);
    settle(now, wakes);
  }
  wakes.run();
}

TimePoint Engine::watch_deadlines(Waiter& waiter, EndedRequests& ended) {
  Wakes wakes;
  TimePoint until;
  {
    MutexLock lock(mutex_);
    if (has_timer_thread_) return TimePoint::max();
    const TimePoint now = Clock::now();
    if (timer_ != nullptr && now < timer_until_) return timer_until_;
    timer_ = &waiter;
    end_expired(now, ended, wakes);
    end_hopeless(now, ended, wakes);
    until = timer_until_ = next_deadline(now);
    if (ended.count > 0) settle(now, wakes);
  }
  wakes.run();
  return until;
}

void Engine::stop_watching(const Waiter& waiter) {
  MutexLock lock(mutex_);
  if (timer_ == &waiter) timer_ = nullptr;
}

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

// --- under the mutex ---

void Engine::end_expired(TimePoint now, EndedRequests& ended, Wakes& wakes) {
  for (Request *request = live_.first(), *next = nullptr; request != nullptr; request = next) {
    next = request->next_live;
    if (request->deadline <= now) end(*request, Outcome::kExpired, now, ended, wakes);
  }
}

TimePoint Engine::next_deadline(TimePoint now) {
  TimePoint next = next_hopeless(now);
  for (const Request* request = live_.first(); request != nullptr; request = request->next_live) {
    if (!request->watched) next = std::min(next, request->deadline);
  }
  return next;
}

}  // namespace service_streamer
