#include "service_streamer/batching/recent_stats.h"

#include <algorithm>

namespace service_streamer {
namespace {

StatsHistory::Snapshot snapshot_of(TimePoint time, const EventCounts& counts, const Times<DurationHistogram>& times) {
  return {.time = time,
          .counts = counts,
          .times = {.queue_time = times.queue_time.snapshot(),
                    .service_time = times.service_time.snapshot(),
                    .delivery_time = times.delivery_time.snapshot(),
                    .latency = times.latency.snapshot()}};
}

}  // namespace

StatsHistory::StatsHistory(TimePoint start) : next_(start + kInterval) {
  ring_.reserve(kSnapshots);
  ring_.push_back({.time = start, .counts = {}, .times = {}});
}

void StatsHistory::take_snapshot(TimePoint now, const EventCounts& counts, const Times<DurationHistogram>& times) {
  if (ring_.size() < kSnapshots) ring_.emplace_back();
  ring_[taken_++ % kSnapshots] = snapshot_of(now, counts, times);
  next_ = now + kInterval;
}

// All events between two snapshots happened in the second after the first one. So after this second, and until the
// second one, nothing was counted.
StatsHistory::Snapshot StatsHistory::at_start_of(Duration window, TimePoint now, const EventCounts& counts,
                                                 const Times<DurationHistogram>& times) const {
  const TimePoint start = now - window;
  const std::size_t oldest = taken_ - std::min(taken_, kSnapshots);
  std::size_t number = taken_ - 1;
  while (number > oldest && snapshot(number).time > start) --number;
  const Snapshot& before = snapshot(number);
  if (start < before.time + kInterval) return before;
  Snapshot quiet = number + 1 < taken_ ? snapshot(number + 1) : snapshot_of(now, counts, times);
  quiet.time = start;
  return quiet;
}

RecentStats stats_since(const StatsHistory::Snapshot& start, TimePoint now, const EventCounts& counts,
                        const Times<DurationHistogram>& times) {
  return {.length = now - start.time,
          .counts = counts - start.counts,
          .times = {.queue_time = times.queue_time.summary_since(start.times.queue_time),
                    .service_time = times.service_time.summary_since(start.times.service_time),
                    .delivery_time = times.delivery_time.summary_since(start.times.delivery_time),
                    .latency = times.latency.summary_since(start.times.latency)}};
}

}  // namespace service_streamer
