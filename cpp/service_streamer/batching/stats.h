#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_policy.h"

namespace service_streamer {

// A summary of a set of durations. The percentiles are rounded to the middle of a bucket of DurationHistogram. All
// other fields are exact.
struct DurationSummary {
  std::uint64_t count = 0;
  Duration mean{0};
  Duration p50{0};
  Duration p90{0};
  Duration p99{0};
  Duration max{0};
};

// Counts durations in buckets that are an eighth of an octave wide. Any thread may call it, without a lock. A summary
// may miss durations that are being added at the same time.
class DurationHistogram {
 public:
  void add(Duration value);
  DurationSummary summary() const;

 private:
  static constexpr int kSubBits = 3;
  static constexpr int kOctaves = 44;  // up to about five hours; longer durations count as that
  static constexpr std::size_t kBuckets = (kOctaves - kSubBits + 1) << kSubBits;

  static std::size_t bucket_of(std::uint64_t nanoseconds);
  static std::uint64_t middle_of(std::size_t bucket);

  std::array<std::atomic<std::uint64_t>, kBuckets> buckets_{};
  std::atomic<std::uint64_t> sum_{0};
  std::atomic<std::uint64_t> max_{0};
};

// Counters since the engine was made. They count requests unless a comment says otherwise.
struct Counters {
  std::uint64_t submitted = 0;
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;  // the model raised an exception, or the worker was lost
  std::uint64_t cancelled = 0;
  std::uint64_t expired = 0;
  std::uint64_t rejected = 0;       // refused because the queue was full
  std::uint64_t dropped = 0;        // ended by close
  std::uint64_t batches = 0;        // batches
  std::uint64_t items = 0;          // items in these batches
  std::uint64_t isolated = 0;       // answered although the first run of the batch failed
  std::uint64_t peak_requests = 0;  // the largest number at the same time
  std::map<std::size_t, std::uint64_t> batch_sizes;
  std::array<std::uint64_t, static_cast<std::size_t>(CloseReason::kDrain) + 1> close_reasons{};
};

// A snapshot of the state, the counters and the durations of an engine.
struct EngineStats {
  int workers = 0;
  int idle_workers = 0;
  std::size_t queued_items = 0;
  int queued_requests = 0;
  int waiting_requests = 0;  // in the waiting room, because the queue is full
  std::size_t running_items = 0;
  int running_batches = 0;
  Counters counters;
  DurationSummary queue_time;     // of requests, from the arrival until the first item is cut into a batch
  DurationSummary service_time;   // of batches, from the cut until the batch is back
  DurationSummary delivery_time;  // of requests, from the end until the caller has the result
};

}  // namespace service_streamer
