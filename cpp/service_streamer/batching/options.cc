#include "service_streamer/batching/options.h"

#include <limits>
#include <stdexcept>
#include <string>

namespace service_streamer {

EngineOptions EngineOptions::validated() const {
  const auto require = [](bool holds, const char* rule, auto value) {
    if (!holds) throw std::invalid_argument(std::string(rule) + ", got " + std::to_string(value));
  };
  require(batch_size >= 1, "batch_size must be at least 1", batch_size);
  require(max_latency >= Duration::zero(), "max_latency must be at least 0 ns", max_latency.count());
  require(slo >= Duration::zero(), "slo must be at least 0 ns", slo.count());
  require(ageing > Duration::zero(), "ageing must be more than 0 ns", ageing.count());
  require(max_weight > 0, "max_weight must be more than 0", max_weight);
  require(max_queue_weight > 0, "max_queue_weight must be more than 0", max_queue_weight);
  require(buckets <= kMaxBuckets, "buckets must be at most 64", buckets);
  require(workers >= 1, "workers must be at least 1", workers);

  EngineOptions options = *this;
  constexpr std::size_t kQueuedBatches = 1024;
  if (options.max_queue == 0 && __builtin_mul_overflow(kQueuedBatches, batch_size, &options.max_queue)) {
    options.max_queue = std::numeric_limits<std::size_t>::max();  // batch_size may be so large that it means no limit
  }
  return options;
}

EngineOptions EngineChange::applied_to(EngineOptions options) const {
  options.batch_size = batch_size.value_or(options.batch_size);
  options.max_latency = max_latency.value_or(options.max_latency);
  options.policy = policy.value_or(options.policy);
  options.slo = slo.value_or(options.slo);
  return options.validated();
}

}  // namespace service_streamer
