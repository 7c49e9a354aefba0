#include "service_streamer/batching/deadline_timer.h"

#include "service_streamer/batching/engine.h"

namespace service_streamer {

DeadlineTimer::Ready DeadlineTimer::wait(Waiter& waiter) {
  TimePoint until;
  {
    MutexLock lock(engine_.mutex_);
    same_mutex(engine_.mutex_, mutex_);
    if (engine_.finished()) return Ready::kClosed;
    has_thread_ = true;
    watcher_ = &waiter;
    until = until_ = engine_.next_deadline(Clock::now());
  }
  const Parker::Wake wake = waiter.parker.park(until);
  MutexLock lock(engine_.mutex_);
  same_mutex(engine_.mutex_, mutex_);
  watcher_ = nullptr;  // an awake timer looks at all deadlines before it sleeps again
  if (engine_.finished()) return Ready::kClosed;
  return wake == Parker::Wake::kInterrupted ? Ready::kInterrupted : Ready::kDue;
}

void DeadlineTimer::leave() {
  MutexLock lock(mutex_);
  has_thread_ = false;
}

void DeadlineTimer::expire(EndedRequests& ended) {
  Wakes wakes;
  {
    MutexLock lock(engine_.mutex_);
    const TimePoint now = Clock::now();
    engine_.end_late(now, ended, wakes);
    engine_.settle(now, wakes);
  }
  wakes.run();
}

TimePoint DeadlineTimer::watch(Waiter& waiter, EndedRequests& ended) {
  Wakes wakes;
  TimePoint until;
  {
    MutexLock lock(engine_.mutex_);
    same_mutex(engine_.mutex_, mutex_);
    if (has_thread_) return TimePoint::max();
    const TimePoint now = Clock::now();
    // Called before each sleep of an IO thread. An earlier deadline would have moved until_, so nothing is due yet.
    if (watcher_ != nullptr && now < until_) return until_;
    watcher_ = &waiter;
    engine_.end_late(now, ended, wakes);
    until = until_ = engine_.next_deadline(now);
    if (ended.count > 0) engine_.settle(now, wakes);
  }
  wakes.run();
  return until;
}

void DeadlineTimer::stop_watching(const Waiter& waiter) {
  MutexLock lock(mutex_);
  if (watcher_ == &waiter) watcher_ = nullptr;
}

}  // namespace service_streamer
