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

std::size_t EndedCalls::count() const {
  MutexLock lock(mutex_);
  return count_;
}

EndedCallChain EndedCalls::take(std::size_t most) noexcept {
  MutexLock lock(mutex_);
  ClientCall* const first = first_;
  ClientCall* last = nullptr;
  for (; first_ != nullptr && most > 0; --most, --count_) {
    last = std::exchange(first_, first_->next_);
  }
  if (last == nullptr) return EndedCallChain(nullptr);
  last->next_ = nullptr;
  return EndedCallChain(first);
}

void EndedCalls::close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  take();  // drops them
}

ClientCallRef EndedCallChain::pop() noexcept {
  ClientCall* const call = first_;
  if (call != nullptr) first_ = call->next_;
  return ClientCallRef(call);
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
