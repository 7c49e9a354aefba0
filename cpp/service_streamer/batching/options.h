#pragma once

#include <cstddef>
#include <optional>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_policy.h"

namespace service_streamer {

// What a submit does when the queue is full.
enum class Overflow { kBlock, kReject };

struct EngineOptions {
  // Most items that one call of the model gets.
  std::size_t batch_size = 64;

  // Longest time that a request waits for company once a worker could take it; 0: never wait.
  Duration max_latency = std::chrono::milliseconds(100);

  PolicyKind policy = PolicyKind::kAdaptive;

  // How many workers pull.
  int workers = 1;

  // Most items that wait in the queue; 0: 1024 batches. A request that is larger than this goes in when nothing waits.
  std::size_t max_queue = 0;

  Overflow overflow = Overflow::kBlock;

  // Throws std::invalid_argument naming the field and the value; returns the options with their defaults filled in.
  EngineOptions validated() const;

  BatchPolicy::Options policy_options() const {
    return {.kind = policy, .batch_size = batch_size, .max_latency = max_latency, .workers = workers};
  }
};

// What may change while the engine is at work; what is not given stays as it is.
struct EngineChange {
  std::optional<std::size_t> batch_size = std::nullopt;
  std::optional<Duration> max_latency = std::nullopt;
  std::optional<PolicyKind> policy = std::nullopt;

  // The options with it; throws as EngineOptions::validated().
  EngineOptions applied_to(EngineOptions options) const;
};

}  // namespace service_streamer
