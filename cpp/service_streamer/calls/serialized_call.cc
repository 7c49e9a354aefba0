#include "service_streamer/calls/serialized_call.h"

#include <algorithm>
#include <utility>

namespace service_streamer::ipc {

void SerializedCall::add(ResultRange range) {
  if (failed_) return;
  failed_ = range.result.kind == ResultKind::kError;
  if (failed_) ranges.clear();
  const auto place = std::find_if(ranges.rbegin(), ranges.rend(),
                                  [&](const ResultRange& earlier) { return earlier.begin < range.begin; });
  ranges.insert(place.base(), std::move(range));
}

bool SerializedCall::fits(const EndedCall& end) const {
  if (end.outcome == Outcome::kFailed) return !end.ranges.empty();
  if (end.outcome != Outcome::kAnswered) return end.ranges.empty();
  std::uint64_t items = 0;
  for (const ResultRange& range : end.ranges) {
    if (range.begin != items || range.result.kind == ResultKind::kError) return false;
    items += range.count;
  }
  return items == request.size;
}

void SerializedCall::drop_inputs() {
  payload = {};
  if (!has_result()) ranges = {};
}

void publish(EndedRequests& ended, const std::string& note) {
  for (Request* request = ended.first; request != nullptr; request = request->next_ended) {
    SerializedCall::of(*request).note = note;
  }
  publish(ended);
}

// --- LocalCall ---

void LocalCall::publish() noexcept {
  // Of publish() and forwarded(), the one that sets its bit second tells the forwarder.
  if (!has_result() && (state_.fetch_or(kEnded, std::memory_order_acq_rel) & kForwarded) != 0) {
    forwarder_->cancel(id_, request.outcome);
  }
  WakeQueue::instance().publish(request.completion);
  observers.notify();
}

std::uint64_t LocalCall::forwarded(const std::shared_ptr<Forwarder>& to, std::uint64_t id) {
  if (forwarder_ == nullptr) {
    forwarder_ = to;
    id_ = id;
  }
  if ((state_.fetch_or(kForwarded, std::memory_order_acq_rel) & kEnded) != 0) {
    forwarder_->cancel(id_, request.outcome);
  }
  return id_;
}

std::uint64_t LocalCall::forwarded_as() const {
  return (state_.load(std::memory_order_acquire) & kForwarded) != 0 ? id_ : 0;
}

}  // namespace service_streamer::ipc
