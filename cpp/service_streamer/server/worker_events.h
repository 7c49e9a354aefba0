#pragma once

#include <deque>
#include <optional>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/server/server.h"
#include "service_streamer/waiting/waiter.h"

namespace service_streamer::ipc {

// What the IO thread tells the supervisor. Any thread may post; one at a time waits.
class WorkerEvents {
 public:
  void post(Server::Event event) EXCLUDES(mutex_);

  // Blocks until an event, interrupt(), the deadline or a signal (nullopt).
  std::optional<Server::Event> next(Waiter& waiter, TimePoint deadline) EXCLUDES(mutex_);

  // One call of next(), this or the following, comes back without an event.
  void interrupt() EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::deque<Server::Event> events_ GUARDED_BY(mutex_);
  bool interrupted_ GUARDED_BY(mutex_) = false;
  Waiter* waiter_ GUARDED_BY(mutex_) = nullptr;  // who sleeps in next()
};

}  // namespace service_streamer::ipc
