#pragma once

#include <atomic>

#include "support/threads.h"

namespace service_streamer::support {

// The timer thread, which ends requests whose deadline no blocked caller watches.
class Timer {
 public:
  explicit Timer(Engine& engine) : engine_(engine), thread_([this] { run(); }) {}
  ~Timer() {
    close(engine_, false);
    abort(engine_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  int wake_ups() const { return wake_ups_; }
  bool asleep() const {
    return eventually([this] { return thread_.asleep(); });
  }
  Thread& thread() { return thread_; }

 private:
  void run() {
    Sleeping sleeping;
    for (;;) {
      const DeadlineTimer::Ready ready = engine_.deadline_timer().wait(sleeping.waiter());
      if (ready == DeadlineTimer::Ready::kClosed) return;
      ++wake_ups_;
      expire(engine_);
    }
  }

  Engine& engine_;
  std::atomic<int> wake_ups_{0};
  Thread thread_;
};

}  // namespace service_streamer::support
