#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/request.h"

namespace service_streamer {

// A summary of a set of durations.
struct DurationSummary {
  std::uint64_t count = 0;
  Duration total{0};
  Duration min{0};
  Duration max{0};
  // The durations of each bucket that is not empty, by the longest duration of the bucket in nanoseconds.
  std::map<std::uint64_t, std::uint64_t> buckets;
};

// Counts durations in buckets that are an eighth of an octave wide. Any thread may call it, without a lock. A summary
// may miss durations that are being added at the same time.
class DurationHistogram {
  static constexpr int kSubBits = 3;
  static constexpr int kOctaves = 44;  // up to about five hours; the last bucket has all longer durations, too
  static constexpr std::size_t kBuckets = (kOctaves - kSubBits + 1) << kSubBits;

 public:
  // The state at one time. The counts wrap: only the difference from a later state has a meaning.
  struct Snapshot {
    std::array<std::uint32_t, kBuckets> buckets{};
    std::uint64_t total = 0;
  };

  void add(Duration value);
  Snapshot snapshot() const;

  DurationSummary summary() const;

  // The summary of the durations since the snapshot, fewer than 2^32 in each bucket. Its `min` and `max` are rounded to
  // the bounds of their buckets, but stay within those of summary().
  DurationSummary summary_since(const Snapshot& start) const;

 private:
  static std::size_t bucket_of(std::uint64_t nanoseconds);
  static std::uint64_t end_of(std::size_t bucket);  // the longest duration of the bucket
  template <typename CountOf>
  static DurationSummary summary_of(const CountOf& count_of);  // `min` is the begin of its bucket

  std::array<std::atomic<std::uint64_t>, kBuckets> buckets_{};
  std::atomic<std::uint64_t> total_{0};
  std::atomic<std::uint64_t> min_{std::numeric_limits<std::uint64_t>::max()};
  std::atomic<std::uint64_t> max_{0};
};

// Counts of what happened since the engine was made, or in a window of time. They count requests unless a comment says
// otherwise.
struct EventCounts {
  std::uint64_t submitted = 0;
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;  // the model raised an exception, or the worker was lost
  std::uint64_t cancelled = 0;
  std::uint64_t expired = 0;
  std::uint64_t rejected = 0;       // refused because the queue was full, or because of the target
  std::uint64_t dropped = 0;        // ended by close
  std::uint64_t isolated = 0;       // answered although the first run of the batch failed
  std::uint64_t out_of_memory = 0;  // batches that had too little memory, and ran in parts
  std::uint64_t batches = 0;        // batches
  std::uint64_t items = 0;          // items in these batches
  std::uint64_t other_keys = 0;     // batches that were not full while only items with other keys were queued
  double weight = 0;                // of these items; 0 if weights are not limited
  double padded_weight = 0;         // the same with padding: for each batch, its items times the weight of the heaviest
  std::array<std::uint64_t, static_cast<std::size_t>(CloseReason::kDrain) + 1> close_reasons{};  // batches
};

EventCounts operator-(const EventCounts& later, const EventCounts& earlier);

// The counter of the requests that ended in one way.
struct OutcomeCounter {
  const char* name;
  std::uint64_t EventCounts::* count;
};
OutcomeCounter counter_of(Outcome outcome);

// All counters since the engine was made.
struct Counters : EventCounts {
  std::uint64_t peak_requests = 0;  // the largest number at the same time
  std::map<std::size_t, std::uint64_t> batch_sizes;
};

// The durations that an engine measures.
template <typename Of>
struct Times {
  Of queue_time;     // of requests, from the arrival until the first item is cut into a batch
  Of service_time;   // of batches, from the cut until the batch is back
  Of delivery_time;  // of requests, from the end until the caller has the result
  Of latency;        // of requests, from Request::begun() until the caller has the result, or its reply is sent
};

// What happened in a window of time that ends now.
struct RecentStats {
  Duration length{0};
  EventCounts counts;
  Times<DurationSummary> times;
};

// The requests of one tenant.
struct TenantStats {
  std::size_t queued_items = 0;
  EventCounts counts;  // only of how its requests ended
};

// A snapshot of the state, the counters and the durations of an engine.
struct EngineStats : Times<DurationSummary> {
  std::string engine_id;
  Duration uptime{0};
  int workers = 0;
  int idle_workers = 0;
  std::size_t queued_items = 0;
  double queued_weight = 0;  // 0 if it is not bounded
  int queued_requests = 0;
  int waiting_requests = 0;                      // in the waiting room, because the queue is full
  std::map<std::string, std::uint64_t> tenants;  // the most queued items of tenants with a name; at most kTenants
  static constexpr std::size_t kTenants = 20;
  std::map<std::string, TenantStats> tenant_stats;  // of the named TenantShares, and "*": of all others
  std::size_t running_items = 0;
  int running_batches = 0;
  std::size_t batch_limit = 0;  // items; below batch_size if larger batches would miss the target
  // By place, the most that a batch may hold so that it does not run out of memory, as learned: a weight if batches are
  // weighed, else items. Places without a limit are left out.
  std::map<std::uint64_t, double> memory_limits;
  Duration least_service{0};  // the expected time of a batch of one item; 0 without a target
  Counters counters;
  RecentStats last_10s;
  RecentStats last_minute;
};

}  // namespace service_streamer
