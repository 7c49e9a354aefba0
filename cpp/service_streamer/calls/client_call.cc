#include "service_streamer/calls/client_call.h"

#include <utility>

namespace service_streamer::ipc {

void EndedCalls::push(ClientCall& call) {
  bool was_empty;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    was_empty = ended_.empty();
    call.ref();
    ended_.push_back(&call);
  }
  if (was_empty && owner_.load(std::memory_order_relaxed) != std::this_thread::get_id()) waiter_.parker.unpark();
}

std::vector<ClientCall*> EndedCalls::take() {
  MutexLock lock(mutex_);
  return std::exchange(ended_, {});
}

void EndedCalls::close() {
  std::vector<ClientCall*> dropped;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    dropped = std::exchange(ended_, {});
  }
  for (ClientCall* call : dropped) call->unref();
}

EndedCall ClientCall::take_end() {
  const Outcome outcome = request.outcome;
  EndedCall end{.id = id_, .outcome = outcome, .note = {}, .ranges = {}};
  // No worker has had any item, so the client may send the request again.
  if (outcome == Outcome::kClosed && request.dispatched == 0) end.outcome = Outcome::kNone;
  if (outcome == Outcome::kLost) end.note = note;
  if (outcome == Outcome::kAnswered || outcome == Outcome::kFailed) end.ranges = std::move(ranges);
  return end;
}

}  // namespace service_streamer::ipc
