#include "service_streamer/client/cancelled_requests.h"

#include <utility>

namespace service_streamer::ipc {

void CancelledRequests::cancel(std::uint64_t id, Outcome outcome) {
  if (outcome != Outcome::kCancelled) return;
  {
    MutexLock lock(mutex_);
    ids_.push_back(id);
  }
  waiter_.parker.unpark();
}

std::vector<std::uint64_t> CancelledRequests::take() {
  MutexLock lock(mutex_);
  return std::exchange(ids_, {});
}

}  // namespace service_streamer::ipc
