#pragma once

#include <cstdint>
#include <vector>

#include "service_streamer/base/mutex.h"
#include "service_streamer/calls/serialized_call.h"
#include "service_streamer/waiting/waiter.h"

namespace service_streamer::ipc {

// The forwarded requests that were cancelled in this process, for the IO thread of a ClientLink to tell the server.
// Only cancels are collected, because the server watches the deadlines too. cancel() may be called by any thread, and
// after the ClientLink is destroyed: a request may outlive it.
class CancelledRequests final : public Forwarder {
 public:
  explicit CancelledRequests(Waiter& to_wake) : waiter_(to_wake) {}

  void cancel(std::uint64_t id, Outcome outcome) noexcept override EXCLUDES(mutex_);

  // Returns the ids since the last call. For the IO thread.
  std::vector<std::uint64_t> take() EXCLUDES(mutex_);

 private:
  Waiter& waiter_;

  Mutex mutex_;
  std::vector<std::uint64_t> ids_ GUARDED_BY(mutex_);
};

}  // namespace service_streamer::ipc
