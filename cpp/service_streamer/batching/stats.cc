#include "service_streamer/batching/stats.h"

#include <algorithm>
#include <bit>

namespace service_streamer {

std::size_t DurationHistogram::bucket_of(std::uint64_t nanoseconds) {
  const int width = static_cast<int>(std::bit_width(nanoseconds));
  if (width <= kSubBits) return static_cast<std::size_t>(nanoseconds);
  const int shift = width - 1 - kSubBits;
  const std::size_t octave = static_cast<std::size_t>(shift) + 1;
  const std::size_t bucket = (octave << kSubBits) + ((nanoseconds >> shift) & ((1U << kSubBits) - 1));
  return std::min(bucket, kBuckets - 1);
}

std::uint64_t DurationHistogram::end_of(std::size_t bucket) {
  const std::size_t octave = bucket >> kSubBits;
  if (octave == 0) return bucket;
  const std::uint64_t step = bucket & ((1U << kSubBits) - 1);
  return (((std::uint64_t{1} << kSubBits) + step + 1) << (octave - 1)) - 1;
}

void DurationHistogram::add(Duration value) {
  const auto nanoseconds = static_cast<std::uint64_t>(std::max(value, Duration::zero()).count());
  buckets_[bucket_of(nanoseconds)].fetch_add(1, std::memory_order_relaxed);
  total_.fetch_add(nanoseconds, std::memory_order_relaxed);
  std::uint64_t min = min_.load(std::memory_order_relaxed);
  while (nanoseconds < min && !min_.compare_exchange_weak(min, nanoseconds, std::memory_order_relaxed)) {
  }
  std::uint64_t max = max_.load(std::memory_order_relaxed);
  while (max < nanoseconds && !max_.compare_exchange_weak(max, nanoseconds, std::memory_order_relaxed)) {
  }
}

DurationHistogram::Snapshot DurationHistogram::snapshot() const {
  Snapshot snapshot;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    snapshot.buckets[i] = static_cast<std::uint32_t>(buckets_[i].load(std::memory_order_relaxed));
  }
  snapshot.total = total_.load(std::memory_order_relaxed);
  return snapshot;
}

template <typename CountOf>
DurationSummary DurationHistogram::summary_of(const CountOf& count_of) {
  DurationSummary summary;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    const std::uint64_t count = count_of(i);
    if (count == 0) continue;
    if (summary.count == 0 && i > 0) summary.min = Duration(end_of(i - 1) + 1);
    summary.buckets.emplace_hint(summary.buckets.end(), end_of(i), count);
    summary.count += count;
  }
  return summary;
}

DurationSummary DurationHistogram::summary() const {
  DurationSummary summary = summary_of([&](std::size_t i) { return buckets_[i].load(std::memory_order_relaxed); });
  if (summary.count == 0) return summary;
  summary.total = Duration(total_.load(std::memory_order_relaxed));
  summary.min = Duration(std::min(summary.buckets.begin()->first, min_.load(std::memory_order_relaxed)));
  summary.max = Duration(max_.load(std::memory_order_relaxed));
  return summary;
}

DurationSummary DurationHistogram::summary_since(const Snapshot& start) const {
  DurationSummary summary = summary_of([&](std::size_t i) {
    return static_cast<std::uint32_t>(buckets_[i].load(std::memory_order_relaxed)) - start.buckets[i];
  });
  if (summary.count == 0) return summary;
  summary.total = Duration(total_.load(std::memory_order_relaxed) - start.total);
  const std::uint64_t min = std::min(summary.buckets.begin()->first, min_.load(std::memory_order_relaxed));
  summary.min = std::max(summary.min, Duration(min));
  summary.max = Duration(std::min(summary.buckets.rbegin()->first, max_.load(std::memory_order_relaxed)));
  return summary;
}

OutcomeCounter counter_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kAnswered:
      return {"completed", &EventCounts::completed};
    case Outcome::kExpired:
      return {"expired", &EventCounts::expired};
    case Outcome::kCancelled:
      return {"cancelled", &EventCounts::cancelled};
    case Outcome::kClosed:
      return {"dropped", &EventCounts::dropped};
    case Outcome::kRefused:
      return {"rejected", &EventCounts::rejected};
    case Outcome::kNone:
    case Outcome::kFailed:
    case Outcome::kLost:
      break;
  }
  return {"failed", &EventCounts::failed};
}

EventCounts operator-(const EventCounts& later, const EventCounts& earlier) {
  using Values = std::array<std::uint64_t, sizeof(EventCounts) / sizeof(std::uint64_t)>;  // of all but the weights
  auto values = std::bit_cast<Values>(later);
  const auto subtracted = std::bit_cast<Values>(earlier);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] -= subtracted[i];
  auto difference = std::bit_cast<EventCounts>(values);
  difference.weight = later.weight - earlier.weight;
  difference.padded_weight = later.padded_weight - earlier.padded_weight;
  return difference;
}

}  // namespace service_streamer
