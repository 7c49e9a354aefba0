#pragma once

#include <atomic>

#include "service_streamer/waiting/waiter.h"
#include "support/threads.h"

namespace service_streamer::support {

// A thread that waits once, on a waiter that the test can access.
class Caller {
 public:
  explicit Caller(Completion& completion, TimePoint deadline = TimePoint::max())
      : thread_([this, &completion, deadline] {
          result_ = completion.wait(waiter_, deadline);
          WaiterPool::release(waiter_);
        }) {}

  bool asleep() const {
    return eventually([this] { return thread_.asleep(); });
  }
  bool returned() const { return thread_.finished(); }
  bool returns(Completion::Wait expected) const {
    return eventually([this] { return returned(); }) && result_ == expected;
  }
  Waiter& waiter() { return waiter_; }
  Thread& thread() { return thread_; }

 private:
  Waiter& waiter_ = WaiterPool::acquire();
  std::atomic<Completion::Wait> result_{Completion::Wait::kInterrupted};
  Thread thread_;
};

}  // namespace service_streamer::support
