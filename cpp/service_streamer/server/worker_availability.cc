#include "service_streamer/server/worker_availability.h"

#include <utility>

#include "service_streamer/calls/serialized_call.h"

namespace service_streamer::ipc {

void WorkerAvailability::set(std::optional<std::string> note) {
  {
    MutexLock lock(mutex_);
    note_ = note.value_or("");
    // Before abort(): a request that abort() does not find was submitted later, and check() then sees the flag.
    unavailable_.store(note.has_value(), std::memory_order_release);
  }
  if (!note.has_value()) return;
  EndedRequests ended;
  engine_.abort(Outcome::kLost, ended);
  publish(ended, *note);
}

void WorkerAvailability::check(Request& request) {
  if (!unavailable()) return;
  EndedRequests ended;
  engine_.end_early(request, Outcome::kLost, true, ended);
  publish(ended, note());
}

std::string WorkerAvailability::note() const {
  MutexLock lock(mutex_);
  return note_;
}

}  // namespace service_streamer::ipc
