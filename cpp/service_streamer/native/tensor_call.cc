#include "service_streamer/native/tensor_call.h"

#include <algorithm>
#include <new>
#include <utility>

namespace service_streamer::native {

bool TensorCall::add(OutputRange range) {
  MutexLock lock(mutex_);
  if (ended_ || failed_) return true;
  try {
    arrived_.push_back(std::move(range));
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

void TensorCall::note(const std::shared_ptr<BatchRecord>& record) {
  MutexLock lock(mutex_);
  records_.push_back(record);
}

std::vector<std::shared_ptr<BatchRecord>> TensorCall::take_records() {
  MutexLock lock(mutex_);
  return std::exchange(records_, {});
}

void TensorCall::publish() noexcept {
  // Swapped out under the lock, but destroyed after it: outputs of a failed request may be large.
  std::vector<OutputRange> arrived;
  {
    MutexLock lock(mutex_);
    ended_ = true;
    arrived.swap(arrived_);
    if (failed_) failure = *std::move(failed_);
  }
  if (request.outcome == Outcome::kAnswered) {
    outputs.swap(arrived);
    std::sort(outputs.begin(), outputs.end(),
              [](const OutputRange& a, const OutputRange& b) { return a.begin < b.begin; });
  }
  WakeQueue::instance().publish(request.completion);
  observers.notify();
}

void TensorCall::drop_inputs() {
  items_.reset();
}

}  // namespace service_streamer::native
