#include "service_streamer/calls/client_call.h"

#include <utility>

namespace service_streamer::ipc {

void EndedCalls::push(ClientCall& call) noexcept {
  bool was_empty;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    was_empty = first_ == nullptr;
    call.ref();
    (was_empty ? first_ : last_->next_) = &call;
    last_ = &call;
    ++count_;
  }
  if (was_empty && owner_.load(std::memory_order_relaxed) != std::this_thread::get_id()) waiter_.parker.unpark();
}

std::vector<ClientCall*> EndedCalls::take() {
  std::vector<ClientCall*> calls;
  MutexLock lock(mutex_);
  calls.reserve(count_);
  for (ClientCall* call = std::exchange(first_, nullptr); call != nullptr; call = call->next_) calls.push_back(call);
  count_ = 0;
  return calls;
}

void EndedCalls::close() {
  ClientCall* dropped;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    dropped = std::exchange(first_, nullptr);
    count_ = 0;
  }
  while (dropped != nullptr) std::exchange(dropped, dropped->next_)->unref();
}

EndedCall ClientCall::take_end() {
  const Outcome outcome = request.outcome;
  EndedCall end{.id = id_, .outcome = outcome, .note = {}, .ranges = {}};
  // No worker has had any item, so the client may send the request again.
  if (outcome == Outcome::kClosed && request.dispatched == 0) end.outcome = Outcome::kNone;
  if (outcome == Outcome::kLost) end.note = note;
  if (outcome == Outcome::kRefused) end.note = retry_note(request.retry_after);
  if (outcome == Outcome::kAnswered || outcome == Outcome::kFailed) end.ranges = std::move(ranges);
  return end;
}

}  // namespace service_streamer::ipc
