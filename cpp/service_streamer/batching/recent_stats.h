#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/stats.h"

namespace service_streamer {

// Remembers what an engine had counted at each second of the last minute, for statistics of the last seconds. It has
// no timer: each event looks whether a second has passed since the last snapshot. So an idle engine does nothing.
//
// The owner serialises all calls, and their times never decrease. None blocks. The constructor reserves the memory
// for all snapshots, which takes no pages before they are written.
class StatsHistory {
 public:
  static constexpr Duration kLongest = std::chrono::minutes(1);

  // What had been counted at a time.
  struct Snapshot {
    TimePoint time;
    EventCounts counts;
    Times<DurationHistogram::Snapshot> times;
  };

  explicit StatsHistory(TimePoint start);

  // Call this before an event at `now` is added to the counts or the times. Returns the end of the second: earlier
  // events need no call.
  TimePoint before_event(TimePoint now, const EventCounts& counts, const Times<DurationHistogram>& times) {
    if (now >= next_) take_snapshot(now, counts, times);
    return next_;
  }

  // What had been counted before the window of the given length, at most kLongest, that ends now. `time` is the
  // start of the window. It is the start of the history if that is later, and it can be up to a second too early if
  // events happened in that second.
  Snapshot at_start_of(Duration window, TimePoint now, const EventCounts& counts,
                       const Times<DurationHistogram>& times) const;

 private:
  static constexpr Duration kInterval = std::chrono::seconds(1);
  static constexpr std::size_t kSnapshots = kLongest / kInterval + 1;

  void take_snapshot(TimePoint now, const EventCounts& counts, const Times<DurationHistogram>& times);
  const Snapshot& snapshot(std::size_t number) const { return ring_[number % kSnapshots]; }

  std::vector<Snapshot> ring_;
  std::size_t taken_ = 1;  // snapshots so far; the first is of the start
  TimePoint next_;         // when an event takes a snapshot
};

// The statistics of the time from the snapshot until now.
RecentStats stats_since(const StatsHistory::Snapshot& start, TimePoint now, const EventCounts& counts,
                        const Times<DurationHistogram>& times);

}  // namespace service_streamer
