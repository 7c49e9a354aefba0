#pragma once

#include <deque>
#include <optional>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/server/server.h"
#include "service_streamer/waiting/waiter.h"

namespace service_streamer::ipc {

// Events about workers and clients, from the IO thread to the supervisor. Any thread may post and interrupt; one thread
// at a time may wait.
class WorkerEvents {
 public:
  void post(Server::Event event) EXCLUDES(mutex_);

  // Blocks until an event. Returns nullopt after interrupt(), the deadline or a signal.
  std::optional<Server::Event> next(Waiter& waiter, TimePoint deadline) EXCLUDES(mutex_);

  // Makes this or the next call of next() return without an event.
  void interrupt() EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::deque<Server::Event> events_ GUARDED_BY(mutex_);
  bool interrupted_ GUARDED_BY(mutex_) = false;
  Waiter* waiter_ GUARDED_BY(mutex_) = nullptr;  // of the thread that sleeps in next()
};

}  // namespace service_streamer::ipc
