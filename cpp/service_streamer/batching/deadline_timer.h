#pragma once

#include <atomic>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/batching/idle_worker.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/waiting/waiter.h"

namespace service_streamer {

class Engine;

// Watches the deadlines of an engine's requests that no blocked caller watches, and its target. The engine has no
// thread, so a thread that serves it does this in one of two ways. A thread of its own, the timer, sleeps in wait(). A
// thread that also waits for other events calls watch() before it sleeps; while there is a timer, it watches nothing.
//
// A part of Engine, which shares the mutex of the engine. All methods are thread-safe. Only wait() blocks.
class DeadlineTimer {
 public:
  DeadlineTimer(Engine& engine, Mutex& mutex) : engine_(engine), mutex_(mutex) {}

  // True if the engine has a target. Then a thread must wait() or watch(), even if no request has a deadline.
  bool has_target() const { return has_target_.load(std::memory_order_relaxed); }

  enum class Ready { kDue, kClosed, kInterrupted };

  // Blocks until the deadline of a request that is not watched may have passed or the target demands it (kDue: call
  // expire()), the engine is closed and empty (kClosed), or a signal handler ran in this thread. For one thread, the
  // timer. Between its first call and leave() only this thread expires requests.
  Ready wait(Waiter& waiter) EXCLUDES(mutex_);
  void leave() EXCLUDES(mutex_);

  // Ends the requests whose deadline has passed, and queued ones that can no longer be in time for the target.
  void expire(EndedRequests& ended) EXCLUDES(mutex_);

  // Does what expire() does, and returns when to call it again. If an earlier deadline comes, the waiter is woken
  // before. Never blocks.
  TimePoint watch(Waiter& waiter, EndedRequests& ended) EXCLUDES(mutex_);
  void stop_watching(const Waiter& waiter) EXCLUDES(mutex_);

  // --- for the engine: it passes its mutex, which it holds ---
  void set_target(bool has_target, const Mutex& held) REQUIRES(held) {
    same_mutex(held, mutex_);
    has_target_.store(has_target, std::memory_order_relaxed);
  }

  // True if a thread watches that would still sleep at this time.
  bool sleeps_past(TimePoint time, const Mutex& held) const REQUIRES(held) {
    same_mutex(held, mutex_);
    return time < until_ && watcher_ != nullptr;
  }

  // Adds the thread to those to be woken, to sleep until this time. Only if sleeps_past(time).
  void wake_for(TimePoint time, Wakes& wakes, const Mutex& held) REQUIRES(held) {
    same_mutex(held, mutex_);
    until_ = time;
    wakes.others.push_back(watcher_);
  }

  // Adds the thread, if there is one, to those to be woken.
  void wake(Wakes& wakes, const Mutex& held) const REQUIRES(held) {
    same_mutex(held, mutex_);
    if (watcher_ != nullptr) wakes.others.push_back(watcher_);
  }

 private:
  // Constant after construction.
  Engine& engine_;
  Mutex& mutex_;  // of the engine

  std::atomic<bool> has_target_{false};  // written under mutex_
  Waiter* watcher_ GUARDED_BY(mutex_) = nullptr;
  TimePoint until_ GUARDED_BY(mutex_) = TimePoint::max();  // the end of the watcher's sleep
  bool has_thread_ GUARDED_BY(mutex_) = false;             // the timer
};

}  // namespace service_streamer
