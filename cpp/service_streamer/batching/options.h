#pragma once

#include <cstddef>
#include <limits>
#include <optional>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/request_queue.h"
#include "service_streamer/batching/slo_policy.h"

namespace service_streamer {

// When the queue is full, submit waits for room or refuses the request.
enum class Overflow { kBlock, kReject };

struct EngineOptions {
  // The maximum number of items in a batch, at least 1.
  std::size_t batch_size = 64;

  // The longest time that a request waits for others to join its batch once a worker could take it; 0 means never wait.
  Duration max_latency = std::chrono::milliseconds(100);

  // How the engine decides that a batch is due.
  PolicyKind policy = PolicyKind::kAdaptive;

  // The number of workers, at least 1.
  int workers = 1;

  // The maximum number of items in the queue, of each priority together with the higher ones; 0 means 1024 batches. A
  // larger request is admitted if nothing of its priority or a higher one is queued.
  std::size_t max_queue = 0;

  // The most that the items in the queue may weigh together, in the same way; infinite means no such bound. A heavier
  // request is admitted if nothing of its priority or a higher one is queued.
  double max_queue_weight = std::numeric_limits<double>::infinity();

  // The maximum number of items in the queue that belong to one tenant, in the same way; 0 means no such bound. A
  // larger request is admitted if nothing of the tenant is queued.
  std::size_t max_queue_per_tenant = 0;

  // The wait after which a request counts as one priority higher, more than 0; Duration::max() means never.
  Duration ageing = Duration::max();

  // Whether the ItemTraits of requests are ignored, because another engine forms the batches.
  bool ignores_traits = false;

  // The most that the items of a batch may weigh together, more than 0. With `padded`: their number times the weight of
  // the heaviest. An item that is heavier runs alone.
  double max_weight = std::numeric_limits<double>::infinity();
  bool padded = false;

  // The number of buckets, at most kMaxBuckets: items of similar weight. Their numbers are the low bits of the keys,
  // which are at most this number less 1. A batch has several buckets only if that saves time. 0 means that there are
  // none.
  std::size_t buckets = 0;

  // What submit does when the queue is full.
  Overflow overflow = Overflow::kBlock;

  // The time in the queue and in the model that 99 % of the answered requests should keep; 0 means that there is no
  // target. With a target, a request that would miss it is refused, and so is every request while the queue is full.
  Duration slo{0};

  // Returns the options with defaults filled in. Throws std::invalid_argument, with the field and the value, if one
  // is invalid.
  EngineOptions validated() const;

  RequestQueue::Options queue_options() const {
    constexpr double kNoLimit = std::numeric_limits<double>::infinity();
    return {.max_items = max_queue,
            .max_weight = max_queue_weight,
            .max_items_per_tenant = max_queue_per_tenant,
            .ageing = ageing,
            .ignores_traits = ignores_traits,
            .limits = {.items = batch_size,
                       .weight = max_weight,
                       .padded = padded || (buckets > 0 && max_weight == kNoLimit),  // as the buckets count
                       .counts_weight = buckets > 0 || max_queue_weight != kNoLimit}};
  }

  BatchPolicy::Options policy_options() const {
    return {.kind = policy, .batch_size = batch_size, .max_latency = max_latency, .workers = workers};
  }
  SloPolicy::Options slo_options() const { return {.slo = slo, .batch_size = batch_size, .workers = workers}; }
};

// A change of the options at run time. Fields without a value do not change.
struct EngineChange {
  std::optional<std::size_t> batch_size = std::nullopt;
  std::optional<Duration> max_latency = std::nullopt;
  std::optional<PolicyKind> policy = std::nullopt;
  std::optional<Duration> slo = std::nullopt;

  // Returns `options` with this change. Throws as EngineOptions::validated().
  EngineOptions applied_to(EngineOptions options) const;
};

}  // namespace service_streamer
