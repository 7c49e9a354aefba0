#include "service_streamer/batching/batch_cost.h"

#include <algorithm>
#include <cmath>

namespace service_streamer {
namespace {

constexpr double kCostWeight = 1.0 / 16;   // of a new batch in the means
constexpr int kFirstBatches = 16;          // these count alike, as in a plain mean
constexpr double kFasterWeight = 1.0 / 2;  // of a batch that took less than half of the expected time
constexpr double kUnusual = 2;             // a time over the expected one, or the inverse
constexpr double kSlopeWeight = 1.0 / 4;   // of a batch in the slope, if its size is far from the mean
constexpr double kSlopeSpread = 1.0 / 4;   // at this distance from the mean, over the mean, the weight is a half

}  // namespace

void BatchCost::learn(double items, double service) {
  if (!known()) {
    batches_ = 1;
    mean_size_ = items;
    mean_service_ = service;
    return;
  }
  learn_slope(items, service);
  const double before = expected(items);
  service = std::min(service, kUnusual * before);
  double weight = kCostWeight;
  if (kUnusual * service < before) weight = batches_ == 1 ? 1 : kFasterWeight;  // the first one warmed the model up
  if (batches_ < kFirstBatches) weight = std::max(weight, 1.0 / ++batches_);
  mean_size_ += weight * (items - mean_size_);
  mean_service_ += weight * (service - mean_service_);
  item_cost_ = std::min(item_cost_, mean_service_ / mean_size_);
}

// Normalised least mean squares: a size near the mean says little about the slope.
void BatchCost::learn_slope(double items, double service) {
  const double distance = items - mean_size_;
  const double scale = kSlopeSpread * mean_size_;
  if (!has_slope_) {
    if (std::abs(distance) < scale) return;
    item_cost_ = (service - mean_service_) / distance;
    has_slope_ = true;
  } else {
    const double error = std::min(service, kUnusual * expected(items)) - expected(items);
    item_cost_ += kSlopeWeight * error * distance / (distance * distance + scale * scale);
  }
  item_cost_ = std::clamp(item_cost_, 0.0, mean_service_ / mean_size_);
}

std::size_t BatchCost::largest(double service, std::size_t most) const {
  if (!has_slope_ && known()) most = static_cast<std::size_t>(std::min(static_cast<double>(most), 2 * mean_size_));
  if (expected(static_cast<double>(most)) <= service) return most;
  if (expected(1) > service) return 0;
  const double items = mean_size_ + (service - mean_service_) / item_cost_;  // it rises between 1 and `most`
  return static_cast<std::size_t>(std::clamp(items, 1.0, static_cast<double>(most)));
}

}  // namespace service_streamer
