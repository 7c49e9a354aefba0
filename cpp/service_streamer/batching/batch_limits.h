#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "service_streamer/batching/batch.h"
#include "service_streamer/batching/request.h"

namespace service_streamer {

// What one batch may hold.
struct BatchLimits {
  std::size_t items = 64;
  // The most that its items may weigh together. With `padded`: the number of items times the weight of the heaviest.
  double weight = std::numeric_limits<double>::infinity();
  bool padded = false;
  bool counts_weight = false;  // also if it is not limited

  bool weighs() const { return counts_weight || weight != std::numeric_limits<double>::infinity(); }
};

// What a batch holds while it is filled.
class BatchLoad {
 public:
  explicit BatchLoad(const BatchLimits& limits) : limits_(limits) {}

  // How many items from `dispatched` on may be added, without the items that have another key. An item that is heavier
  // than the limit runs alone.
  std::uint32_t room_for(const Request& request) const {
    const std::size_t left = limits_.items - std::min(limits_.items, items_);
    const auto most = static_cast<std::uint32_t>(std::min<std::size_t>(request.run_end - request.dispatched, left));
    if (limits_.weight == std::numeric_limits<double>::infinity()) return most;
    BatchLoad load = *this;
    for (std::uint32_t i = 0; i < most; ++i) {
      load.add_item(request.weight(request.dispatched + i));
      if (load.items_ > 1 && load.weight() > limits_.weight) return i;
    }
    return most;
  }

  void add(const RequestRange& range) {
    if (!limits_.weighs()) {
      items_ += range.count;
      return;
    }
    for (std::uint32_t i = 0; i < range.count; ++i) add_item(range.request->weight(range.begin + i));
  }

  // 0 if the weight does not count.
  double sum() const { return sum_; }
  double padded() const { return static_cast<double>(items_) * heaviest_; }
  double weight() const { return limits_.padded ? padded() : sum_; }

 private:
  void add_item(double weight) {
    ++items_;
    sum_ += weight;
    heaviest_ = std::max(heaviest_, weight);
  }

  const BatchLimits limits_;
  std::size_t items_ = 0;
  double sum_ = 0;
  double heaviest_ = 0;
};

}  // namespace service_streamer
