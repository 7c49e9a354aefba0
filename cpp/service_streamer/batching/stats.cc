#include "service_streamer/batching/stats.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace service_streamer {

std::size_t DurationHistogram::bucket_of(std::uint64_t nanoseconds) {
  const int width = static_cast<int>(std::bit_width(nanoseconds));
  if (width <= kSubBits) return static_cast<std::size_t>(nanoseconds);
  const int shift = width - 1 - kSubBits;
  const std::size_t octave = static_cast<std::size_t>(shift) + 1;
  const std::size_t bucket = (octave << kSubBits) + ((nanoseconds >> shift) & ((1U << kSubBits) - 1));
  return std::min(bucket, kBuckets - 1);
}

std::uint64_t DurationHistogram::middle_of(std::size_t bucket) {
  const std::size_t octave = bucket >> kSubBits;
  const std::uint64_t step = bucket & ((1U << kSubBits) - 1);
  if (octave == 0) return step;
  const std::uint64_t width = std::uint64_t{1} << (octave - 1);
  return (((std::uint64_t{1} << kSubBits) + step) * width) + (width / 2);
}

void DurationHistogram::add(Duration value) {
  const auto nanoseconds = static_cast<std::uint64_t>(std::max(value, Duration::zero()).count());
  buckets_[bucket_of(nanoseconds)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(nanoseconds, std::memory_order_relaxed);
  std::uint64_t max = max_.load(std::memory_order_relaxed);
  while (max < nanoseconds && !max_.compare_exchange_weak(max, nanoseconds, std::memory_order_relaxed)) {
  }
}

DurationSummary DurationHistogram::summary() const {
  std::array<std::uint64_t, kBuckets> counts;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    counts[i] = buckets_[i].load(std::memory_order_relaxed);
    total += counts[i];
  }
  if (total == 0) return {};
  const std::uint64_t max = max_.load(std::memory_order_relaxed);
  const auto percentile = [&](double fraction) {
    auto left = static_cast<std::int64_t>(std::ceil(fraction * static_cast<double>(total)));
    std::size_t bucket = 0;
    while (bucket < kBuckets - 1 && (left -= static_cast<std::int64_t>(counts[bucket])) > 0) ++bucket;
    return Duration(std::min(middle_of(bucket), max));
  };
  return {.count = total,
          .mean = Duration(sum_.load(std::memory_order_relaxed) / total),
          .p50 = percentile(0.5),
          .p90 = percentile(0.9),
          .p99 = percentile(0.99),
          .max = Duration(max)};
}

}  // namespace service_streamer
