#include "service_streamer/native/tensor_call.h"

#include <algorithm>
#include <new>
#include <utility>

namespace service_streamer::native {

bool TensorCall::add(Piece piece) {
  MutexLock lock(mutex_);
  if (ended_ || failed_) return true;
  try {
    arrived_.push_back(std::move(piece));
  } catch (const std::bad_alloc&) {
    failed_.emplace(RunFailure{.fault = Fault::kMemory});
  }
  return !failed_;
}

void TensorCall::fail(const RunFailure& why) {
  MutexLock lock(mutex_);
  if (ended_ || failed_) return;
  try {
    failed_ = why;
  } catch (const std::bad_alloc&) {
    failed_.emplace(RunFailure{.fault = Fault::kMemory});
  }
}

void TensorCall::publish() {
  std::vector<Piece> arrived;
  {
    MutexLock lock(mutex_);
    ended_ = true;
    arrived.swap(arrived_);
    if (failed_) failure = *std::move(failed_);
  }
  if (request.outcome == Outcome::kAnswered) {
    pieces.swap(arrived);
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  }
  WakeQueue::instance().publish(request.completion);
  observers.notify();
}

void TensorCall::drop_inputs() {
  items_.reset();
}

}  // namespace service_streamer::native
