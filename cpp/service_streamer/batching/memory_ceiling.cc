#include "service_streamer/batching/memory_ceiling.h"

#include <algorithm>

namespace service_streamer {
namespace {

constexpr int kPace = 4;            // batches per step of the climb
constexpr int kRest = 2048;         // batches until a size that failed is tried again
constexpr double kStep = 1.0 / 32;  // of the limit

}  // namespace

void MemoryCeiling::failed(double size, double passed) {
  constexpr double kAddedUp = 1e-9;            // sizes may be added up in another order
  if (size > limit_ * (1 + kAddedUp)) return;  // the batch was cut before the last failure
  if (good_ > 0 && size > good_) {
    limit_ = good_;
    left_ = kRest;
  } else {
    pace_ = limit_ < kNone && since_failed_ < kRest ? std::min(2 * pace_, kRest) : kPace;
    limit_ = good_ = std::min(passed, size / 2);
    left_ = pace_;
  }
  since_failed_ = 0;
}

void MemoryCeiling::passed(double size, double most, double least_step) {
  if (limit_ == kNone) return;
  good_ = std::max(good_, std::min(size, limit_));
  since_failed_ = std::min(since_failed_ + 1, kRest);
  if (since_failed_ == kRest) left_ = std::min(left_, pace_ = kPace);
  if (--left_ > 0) return;
  limit_ += std::max(least_step, kStep * limit_);
  left_ = pace_;
  if (limit_ >= most) limit_ = kNone;
}

}  // namespace service_streamer
