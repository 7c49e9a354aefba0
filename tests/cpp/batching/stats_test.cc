#include "service_streamer/batching/stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "simulation/random.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

using simulation::Random;
using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

DurationSummary summary_of(const std::vector<Duration>& values) {
  DurationHistogram histogram;
  for (const Duration value : values) histogram.add(value);
  return histogram.summary();
}

using Buckets = std::map<std::uint64_t, std::uint64_t>;

TEST(DurationHistogram, IsEmptyWithoutData) {
  const DurationSummary summary = DurationHistogram().summary();
  EXPECT_EQ(summary.count, 0U);
  EXPECT_EQ(summary.total, Duration::zero());
  EXPECT_EQ(summary.max, Duration::zero());
  EXPECT_TRUE(summary.buckets.empty());
}

TEST(DurationHistogram, TheFirstNanosecondsHaveABucketEach) {
  for (std::uint64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(summary_of({Duration(i)}).buckets, (Buckets{{i, 1}}));
  }
}

TEST(DurationHistogram, OneValueHasOneBucket) {
  const DurationSummary summary = summary_of({milliseconds(7)});
  EXPECT_EQ(summary.count, 1U);
  EXPECT_EQ(summary.total, milliseconds(7));
  EXPECT_EQ(summary.min, milliseconds(7));
  EXPECT_EQ(summary.max, milliseconds(7));
  ASSERT_EQ(summary.buckets.size(), 1U);
  EXPECT_GE(summary.buckets.begin()->first, 7'000'000U);
}

TEST(DurationHistogram, ABucketEndsWhereTheNextOneBegins) {
  for (int bits = 3; bits < 43; ++bits) {
    const std::uint64_t power = std::uint64_t{1} << bits;
    const std::uint64_t width = power / 8;
    for (std::uint64_t begin = power; begin < 2 * power; begin += width) {
      const std::uint64_t end = begin + width - 1;
      EXPECT_EQ(summary_of({Duration(begin), Duration(end)}).buckets, (Buckets{{end, 2}}));
    }
  }
}

TEST(DurationHistogram, CountsRandomDataInTheirBuckets) {
  Random random(7);
  const std::vector<std::pair<std::string, std::function<Duration()>>> sources = {
      {"exponential", [&] { return random.exponential(microseconds(300)); }},
      {"uniform", [&] { return Duration(random.between(1, 50'000'000)); }},
      {"over nine decades", [&] { return Duration(static_cast<Duration::rep>(std::pow(10, 9 * random.uniform()))); }},
      {"two far peaks",
       [&] { return random.uniform() < 0.7 ? random.exponential(microseconds(2)) : milliseconds(80); }},
  };
  for (const auto& [name, draw] : sources) {
    for (const int count : {1, 2, 10, 101, 10'000}) {
      std::vector<Duration> values;
      Duration total{0};
      for (int i = 0; i < count; ++i) {
        values.push_back(draw());
        total += values.back();
      }
      std::sort(values.begin(), values.end());
      const DurationSummary summary = summary_of(values);
      const std::string what = name + ", " + std::to_string(count) + " values";
      EXPECT_EQ(summary.count, values.size()) << what;
      EXPECT_EQ(summary.min, values.front()) << what;
      EXPECT_EQ(summary.max, values.back()) << what;
      EXPECT_EQ(summary.total, total) << what;
      auto next = values.begin();
      for (const auto& [end, in_bucket] : summary.buckets) {
        const auto last = std::upper_bound(next, values.end(), Duration(end));
        EXPECT_EQ(static_cast<std::uint64_t>(last - next), in_bucket) << what;
        EXPECT_GE(*next, Duration(end - end / 8)) << what << ": an eighth of an octave is the most";
        next = last;
      }
      EXPECT_EQ(next, values.end()) << what;
    }
  }
}

TEST(DurationHistogram, ASummarySinceASnapshotHasOnlyWhatCameLater) {
  DurationHistogram histogram;
  histogram.add(milliseconds(100));
  const DurationHistogram::Snapshot start = histogram.snapshot();
  EXPECT_EQ(histogram.summary_since(start).count, 0U);
  EXPECT_EQ(histogram.summary_since(start).max, Duration::zero());
  histogram.add(milliseconds(5));
  histogram.add(milliseconds(7));
  const DurationSummary summary = histogram.summary_since(start);
  EXPECT_EQ(summary.count, 2U);
  EXPECT_EQ(summary.total, milliseconds(12));
  EXPECT_EQ(summary.buckets, summary_of({milliseconds(5), milliseconds(7)}).buckets);
  EXPECT_GT(summary.min, milliseconds(4)) << "the begin of its bucket";
  EXPECT_LE(summary.min, milliseconds(5));
  EXPECT_EQ(summary.max, Duration(summary.buckets.rbegin()->first)) << "the end of its bucket";
  histogram.add(milliseconds(100));
  EXPECT_EQ(histogram.summary_since(start).max, milliseconds(100)) << "but not more than the true maximum";
  const DurationHistogram::Snapshot later = histogram.snapshot();
  histogram.add(milliseconds(5));
  EXPECT_EQ(histogram.summary_since(later).min, milliseconds(5)) << "but not less than the true minimum";
}

TEST(DurationHistogram, TheCountsOfASnapshotMayWrap) {
  DurationHistogram histogram;
  DurationHistogram::Snapshot start = histogram.snapshot();
  for (std::uint32_t& count : start.buckets) count -= 2;  // 2^32 - 2 durations were counted before
  EXPECT_EQ(histogram.summary_since(start).buckets.at(0), 2U);
  histogram.add(Duration(0));
  EXPECT_EQ(histogram.summary_since(start).buckets.at(0), 3U);
}

TEST(DurationHistogram, ANegativeDurationCountsAsZero) {
  const DurationSummary summary = summary_of({milliseconds(-3), Duration::min()});
  EXPECT_EQ(summary.count, 2U);
  EXPECT_EQ(summary.total, Duration::zero());
  EXPECT_EQ(summary.max, Duration::zero());
}

TEST(DurationHistogram, TheMaximumIsExactBeyondTheLastBucket) {
  const DurationSummary summary = summary_of({hours(4), hours(1000)});
  EXPECT_EQ(summary.max, hours(1000));
  EXPECT_EQ(summary.buckets, summary_of({hours(4), hours(5)}).buckets);
}

TEST(DurationHistogram, LosesNoDurationOfSeveralThreads) {
  DurationHistogram histogram;
  constexpr Duration::rep kAdded = 20'000;
  {
    std::vector<std::unique_ptr<Thread>> threads;
    for (Duration::rep t = 1; t <= 4; ++t) {
      threads.push_back(std::make_unique<Thread>([&histogram, t] {
        for (Duration::rep i = 1; i <= kAdded; ++i) histogram.add(Duration(t * i));
      }));
    }
    std::uint64_t seen = 0;
    EXPECT_TRUE(eventually([&] {
      const std::uint64_t now = histogram.summary().count;
      EXPECT_GE(now, seen);
      seen = now;
      return now == static_cast<std::uint64_t>(4 * kAdded);
    }));
  }
  const DurationSummary summary = histogram.summary();
  EXPECT_EQ(summary.max, Duration(4 * kAdded));
  EXPECT_EQ(summary.total, Duration(5 * kAdded * (kAdded + 1)));
}

}  // namespace
}  // namespace service_streamer::support
