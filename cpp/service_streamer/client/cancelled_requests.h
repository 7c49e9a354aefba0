#pragma once

#include <cstdint>
#include <vector>

#include "service_streamer/base/mutex.h"
#include "service_streamer/calls/serialized_call.h"
#include "service_streamer/waiting/waiter.h"

namespace service_streamer::ipc {

// Requests that a ClientLink handed on and that were cancelled here, on their way to its IO thread. (Deadlines are watched there,
// too.) Requests may outlive the ClientLink.
class CancelledRequests final : public Forwarder {
 public:
  explicit CancelledRequests(Waiter& to_wake) : waiter_(to_wake) {}

  void withdraw(std::uint64_t id, Outcome outcome) override EXCLUDES(mutex_);

  // All since the last call.
  std::vector<std::uint64_t> take() EXCLUDES(mutex_);

 private:
  Waiter& waiter_;

  Mutex mutex_;
  std::vector<std::uint64_t> ids_ GUARDED_BY(mutex_);
};

}  // namespace service_streamer::ipc
