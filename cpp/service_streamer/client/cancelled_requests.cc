#include "service_streamer/client/cancelled_requests.h"

#include <new>
#include <utility>

namespace service_streamer::ipc {

void CancelledRequests::cancel(std::uint64_t id, Outcome outcome) noexcept {
  if (outcome != Outcome::kCancelled) return;
  try {
    MutexLock lock(mutex_);
    ids_.push_back(id);
  } catch (const std::bad_alloc&) {
    return;  // the server runs the request, and its result is dropped
  }
  waiter_.parker.unpark();
}

std::vector<std::uint64_t> CancelledRequests::take() {
  MutexLock lock(mutex_);
  return std::exchange(ids_, {});
}

}  // namespace service_streamer::ipc
