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

  // Takes over a limit of the weight if batches are weighed, else of the items.
  void lower(double limit) {
    if (weighs()) {
      weight = std::min(weight, limit);
    } else if (limit < static_cast<double>(items)) {
      items = std::max<std::size_t>(1, static_cast<std::size_t>(limit));
    }
  }

  bool weighs() const { return counts_weight || weight != std::numeric_limits<double>::infinity(); }
};

// The number of some items, and what they weigh.
struct ItemWeights {
  std::size_t items = 0;
  double sum = 0;
  double heaviest = 0;

  void add(double weight) {
    ++items;
    sum += weight;
    heaviest = std::max(heaviest, weight);
  }
  void add(const RequestRange& range) {
    for (std::uint32_t i = 0; i < range.count; ++i) add(range.request->weight(range.begin + i));
  }
  double padded() const { return static_cast<double>(items) * heaviest; }
  // True if an item may join them without exceeding the limit of the weight. One that is heavier has to be alone.
  bool have_room_for(double weight, const BatchLimits& limits) const {
    ItemWeights all = *this;
    all.add(weight);
    return items == 0 || (limits.padded ? all.padded() : all.sum) <= limits.weight;
  }
};

// What a batch holds while it is filled.
class BatchLoad {
 public:
  explicit BatchLoad(const BatchLimits& limits) : limits_(limits) {}

  // How many items from `dispatched` on may be added, without the items that have another key. An item that is heavier
  // than the limit runs alone.
  std::uint32_t room_for(const Request& request) const {
    const std::size_t left = limits_.items - std::min(limits_.items, held_.items);
    const auto most = static_cast<std::uint32_t>(std::min<std::size_t>(request.run_end - request.dispatched, left));
    if (limits_.weight == std::numeric_limits<double>::infinity()) return most;
    ItemWeights all = held_;
    for (std::uint32_t i = 0; i < most; ++i) {
      const double weight = request.weight(request.dispatched + i);
      if (!all.have_room_for(weight, limits_)) return i;
      all.add(weight);
    }
    return most;
  }

  void add(const RequestRange& range) {
    if (limits_.weighs()) {
      held_.add(range);
    } else {
      held_.items += range.count;
    }
  }

  // 0 if the weight does not count.
  double sum() const { return held_.sum; }
  double padded() const { return held_.padded(); }
  double weight() const { return limits_.padded ? padded() : sum(); }
  // What MemoryCeiling compares.
  double size() const { return limits_.weighs() ? weight() : static_cast<double>(held_.items); }

 private:
  const BatchLimits limits_;
  ItemWeights held_;
};

}  // namespace service_streamer
