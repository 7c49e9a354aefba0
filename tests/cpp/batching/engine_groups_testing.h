#pragma once

// Requests with keys and weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "support/call.h"

namespace service_streamer::support {

using Keys = std::vector<std::uint64_t>;
using Weights = std::vector<double>;
using Ranges = std::vector<std::pair<Request*, std::uint32_t>>;

inline constexpr EngineOptions kGrouped{.batch_size = 4, .policy = PolicyKind::kGreedy, .max_queue = 1'000'000};

inline EngineOptions weighted(double max_weight, bool padded = false) {
  EngineOptions options = kGrouped;
  options.max_weight = max_weight;
  options.padded = padded;
  return options;
}

inline CallPtr submitted_as(Engine& engine, Keys keys, Weights weights = {}, const Terms& terms = {}) {
  const CallPtr call = make_call(static_cast<std::uint32_t>(std::max(keys.size(), weights.size())), terms);
  call->traits = std::make_shared<ItemTraits>(ItemTraits{.keys = std::move(keys), .weights = std::move(weights)});
  EXPECT_EQ(submit(engine, call), Engine::Admission::kQueued);
  return call;
}

// Takes the next batch, answers it, and returns its requests and their items.
inline Ranges served(Engine& engine) {
  Batch batch = take(engine);
  Ranges ranges;
  for (const RequestRange& range : batch.ranges) ranges.emplace_back(range.request, range.count);
  if (!ranges.empty()) answer(engine, batch);
  return ranges;
}

}  // namespace service_streamer::support
