#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_policy.h"

namespace service_streamer {

// Of a set of durations. Percentiles are exact to about 6 %, the width of a bucket; the maximum is exact.
struct DurationSummary {
  std::uint64_t count = 0;
  Duration mean{0};
  Duration p50{0};
  Duration p90{0};
  Duration p99{0};
  Duration max{0};
};

// Counts durations in buckets an eighth of an octave wide. Any thread may add, without a lock; a summary taken meanwhile
// may miss what is being added.
class DurationHistogram {
 public:
  void add(Duration value);
  DurationSummary summary() const;

 private:
  static constexpr int kSubBits = 3;
  static constexpr int kOctaves = 44;  // up to five hours; longer ones count as that
  static constexpr std::size_t kBuckets = (kOctaves - kSubBits + 1) << kSubBits;

  static std::size_t bucket_of(std::uint64_t nanoseconds);
  static std::uint64_t middle_of(std::size_t bucket);

  std::array<std::atomic<std::uint64_t>, kBuckets> buckets_{};
  std::atomic<std::uint64_t> sum_{0};
  std::atomic<std::uint64_t> max_{0};
};

// Everything that was counted since the engine was made. Requests unless it says otherwise.
struct Counters {
  std::uint64_t submitted = 0;
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;  // the model raised, or its worker was lost
  std::uint64_t cancelled = 0;
  std::uint64_t expired = 0;
  std::uint64_t rejected = 0;  // refused because the queue was full
  std::uint64_t dropped = 0;   // ended by close
  std::uint64_t batches = 0;
  std::uint64_t items = 0;          // in those batches
  std::uint64_t isolated = 0;       // requests answered although their batch failed first
  std::uint64_t peak_requests = 0;  // most that were alive at once
  std::map<std::size_t, std::uint64_t> batch_sizes;
  std::array<std::uint64_t, static_cast<std::size_t>(CloseReason::kDrain) + 1> close_reasons{};
};

// A snapshot: what happens now, what was counted, how long things took.
struct EngineStats {
  int workers = 0;
  int idle_workers = 0;
  std::size_t queued_items = 0;
  int queued_requests = 0;
  int waiting_requests = 0;  // for room in the queue
  std::size_t running_items = 0;
  int running_batches = 0;
  Counters counters;
  DurationSummary queue_time;     // of a request, from its arrival until a worker took its first item
  DurationSummary service_time;   // of a batch
  DurationSummary delivery_time;  // of a request, from its end until the caller had it
};

}  // namespace service_streamer
