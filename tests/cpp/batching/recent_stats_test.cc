#include "service_streamer/batching/recent_stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "simulation/random.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

using simulation::Random;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;

const TimePoint kStart{hours(5)};

// An engine that has only a clock and statistics.
class Recorded {
 public:
  void request(TimePoint at, Duration queued = milliseconds(1)) {
    now = at;
    history.before_event(now, counts, times);
    ++counts.submitted;
    times.queue_time.add(queued);
  }

  RecentStats recent(Duration window) const {
    return stats_since(history.at_start_of(window, now, counts, times), now, counts, times);
  }

  // How many of the last `window` are counted. The queue times must agree with the counter.
  std::uint64_t count(Duration window) const {
    const RecentStats stats = recent(window);
    EXPECT_EQ(stats.counts.submitted, stats.times.queue_time.count);
    return stats.counts.submitted;
  }

  TimePoint now = kStart;
  EventCounts counts;
  Times<DurationHistogram> times;
  StatsHistory history{kStart};
};

TEST(RecentStats, AreEmptyAtFirst) {
  const Recorded engine;
  const RecentStats stats = engine.recent(seconds(10));
  EXPECT_EQ(stats.length, Duration::zero());
  EXPECT_EQ(stats.counts.submitted, 0U);
  EXPECT_EQ(stats.times.queue_time.count, 0U);
}

TEST(RecentStats, OfAYoungEngineCoverItsWholeLife) {
  Recorded engine;
  engine.request(kStart);
  engine.request(kStart + milliseconds(2500));
  engine.now = kStart + seconds(4);
  EXPECT_EQ(engine.count(seconds(10)), 2U);
  EXPECT_EQ(engine.recent(seconds(10)).length, seconds(4));
  EXPECT_EQ(engine.recent(minutes(1)).length, seconds(4));
}

TEST(RecentStats, EndExactlyAfterTheWindowIfTheSecondIsOver) {
  Recorded engine;
  engine.request(kStart + seconds(20));  // a first event of a second
  engine.now = kStart + seconds(30);
  EXPECT_EQ(engine.count(seconds(10)), 1U);
  engine.now = kStart + seconds(31) - nanoseconds(1);
  EXPECT_EQ(engine.count(seconds(10)), 1U) << "the whole second in which the window begins";
  EXPECT_EQ(engine.recent(seconds(10)).length, seconds(11) - nanoseconds(1));
  engine.now = kStart + seconds(31);
  EXPECT_EQ(engine.count(seconds(10)), 0U);
  EXPECT_EQ(engine.recent(seconds(10)).length, seconds(10));
}

TEST(RecentStats, AfterAnIdleGapHaveOnlyWhatCameAfterIt) {
  Recorded engine;
  for (int i = 0; i < 30; ++i) engine.request(kStart + milliseconds(200) * i);
  engine.request(kStart + hours(1));
  EXPECT_EQ(engine.count(seconds(10)), 1U);
  EXPECT_EQ(engine.recent(minutes(1)).counts.submitted, 1U);
  EXPECT_EQ(engine.recent(minutes(1)).length, minutes(1));
  engine.now += minutes(2);
  EXPECT_EQ(engine.count(minutes(1)), 0U);
}

TEST(RecentStats, TimesAreThoseOfTheWindow) {
  Recorded engine;
  for (int i = 0; i < 30; ++i) engine.request(kStart, milliseconds(193));
  for (int i = 0; i < 1600; ++i) engine.request(kStart + seconds(2) + milliseconds(i), milliseconds(1));
  engine.now = kStart + seconds(13);
  const DurationSummary queue_time = engine.recent(seconds(10)).times.queue_time;
  EXPECT_EQ(queue_time.total, milliseconds(static_cast<Duration::rep>(queue_time.count)));
  EXPECT_EQ(queue_time.buckets.size(), 1U);
  EXPECT_LT(queue_time.max, milliseconds(2));
}

TEST(RecentStats, EveryCounterIsThatOfTheWindow) {
  Recorded engine;
  const auto add = [&engine](std::uint64_t factor) {
    EventCounts& counts = engine.counts;
    std::uint64_t value = factor;
    for (std::uint64_t* count :
         {&counts.submitted, &counts.completed, &counts.failed, &counts.cancelled, &counts.expired, &counts.rejected,
          &counts.dropped, &counts.isolated, &counts.batches, &counts.items}) {
      *count += value += factor;
    }
    for (std::uint64_t& count : counts.close_reasons) count += value += factor;
  };
  add(1000);
  engine.request(kStart + seconds(20));
  add(1);
  engine.now = kStart + seconds(21);
  const EventCounts counts = engine.recent(seconds(10)).counts;
  EXPECT_EQ(counts.submitted, 3U) << "one more than the others: request()";
  EXPECT_EQ(counts.completed, 3U);
  EXPECT_EQ(counts.failed, 4U);
  EXPECT_EQ(counts.cancelled, 5U);
  EXPECT_EQ(counts.expired, 6U);
  EXPECT_EQ(counts.rejected, 7U);
  EXPECT_EQ(counts.dropped, 8U);
  EXPECT_EQ(counts.isolated, 9U);
  EXPECT_EQ(counts.batches, 10U);
  EXPECT_EQ(counts.items, 11U);
  for (std::size_t i = 0; i < counts.close_reasons.size(); ++i) EXPECT_EQ(counts.close_reasons[i], 12 + i);
}

// For many minutes, so that the ring of snapshots wraps, with bursts, idle gaps, and times on the edges of seconds.
TEST(RecentStats, CountExactlyTheEventsOfTheTimeThatTheyName) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Random random(seed);
    Recorded engine;
    std::vector<TimePoint> events;
    for (int i = 0; i < 2000 / kStressShare; ++i) {
      const double kind = random.uniform();
      Duration gap = random.exponential(milliseconds(20));
      if (kind < 0.1) gap = random.exponential(seconds(2));
      if (kind < 0.05) gap = seconds(random.between(0, 12));
      if (kind < 0.01) gap = random.exponential(seconds(40));
      engine.now += gap;
      if (random.uniform() < 0.9) {
        engine.request(engine.now);
        events.push_back(engine.now);
      }
      for (const Duration window : {Duration(seconds(10)), Duration(minutes(1)), Duration(seconds(1))}) {
        const Duration age = engine.now - kStart;
        const RecentStats stats = engine.recent(window);
        const Duration length = stats.length;
        const auto first = std::lower_bound(events.begin(), events.end(), engine.now - length);
        ASSERT_EQ(stats.counts.submitted, static_cast<std::uint64_t>(events.end() - first)) << "seed " << seed;
        ASSERT_EQ(stats.times.queue_time.count, stats.counts.submitted) << "seed " << seed;
        ASSERT_GE(length, std::min(window, age)) << "seed " << seed;
        ASSERT_LT(length, window + seconds(1)) << "seed " << seed;
        ASSERT_LE(length, age) << "seed " << seed;
      }
    }
  }
}

// The owner has a mutex for the counts and the history. Times are added without it.
TEST(RecentStats, LoseNoDurationThatIsAddedMeanwhile) {
  Recorded engine;
  constexpr std::uint64_t kAdded = 20'000;
  std::vector<std::unique_ptr<Thread>> threads;
  for (int t = 0; t < 3; ++t) {
    threads.push_back(std::make_unique<Thread>([&engine] {
      for (std::uint64_t i = 0; i < kAdded; ++i) engine.times.delivery_time.add(Duration(i));
    }));
  }
  std::uint64_t seen = 0;
  for (int second = 1; second < 60; ++second) {
    engine.request(kStart + seconds(second));
    const std::uint64_t delivered = engine.recent(minutes(1)).times.delivery_time.count;
    EXPECT_GE(delivered, seen);
    EXPECT_LE(engine.recent(seconds(10)).times.delivery_time.count, 3 * kAdded);
    seen = delivered;
  }
  threads.clear();
  EXPECT_EQ(engine.recent(minutes(1)).times.delivery_time.count, 3 * kAdded);
}

}  // namespace
}  // namespace service_streamer::support
