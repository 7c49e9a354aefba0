#include "service_streamer/batching/stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
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

Duration exact(std::vector<Duration> values, double fraction) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(fraction * static_cast<double>(values.size()));
  return values.at(static_cast<std::size_t>(rank) - 1);
}

void expect_near(Duration measured, Duration right, const std::string& what) {
  const auto value = static_cast<double>(right.count());
  EXPECT_NEAR(static_cast<double>(measured.count()), value, 0.07 * value) << what;
}

TEST(DurationHistogram, IsAllZeroWithoutData) {
  const DurationSummary summary = DurationHistogram().summary();
  EXPECT_EQ(summary.count, 0U);
  EXPECT_EQ(summary.mean, Duration::zero());
  EXPECT_EQ(summary.p50, Duration::zero());
  EXPECT_EQ(summary.p99, Duration::zero());
  EXPECT_EQ(summary.max, Duration::zero());
}

TEST(DurationHistogram, CountsTheFirstNanosecondsExactly) {
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(summary_of({Duration(i)}).p50, Duration(i));
  }
}

TEST(DurationHistogram, OneValueIsEveryPercentile) {
  const DurationSummary summary = summary_of({milliseconds(7)});
  EXPECT_EQ(summary.count, 1U);
  EXPECT_EQ(summary.mean, milliseconds(7));
  EXPECT_EQ(summary.max, milliseconds(7));
  expect_near(summary.p50, milliseconds(7), "p50");
  expect_near(summary.p99, milliseconds(7), "p99");
}

TEST(DurationHistogram, NoPercentileIsAboveTheMaximum) {
  for (int bits = 0; bits < 40; ++bits) {
    const DurationSummary summary = summary_of({Duration(Duration::rep{1} << bits)});
    EXPECT_LE(summary.p99, summary.max);
    EXPECT_LE(summary.p50, summary.max);
  }
}

TEST(DurationHistogram, PercentilesAreWithinSevenPercentOfRandomData) {
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
      double sum = 0;
      for (int i = 0; i < count; ++i) {
        values.push_back(draw());
        sum += static_cast<double>(values.back().count());
      }
      const DurationSummary summary = summary_of(values);
      const std::string what = name + ", " + std::to_string(count) + " values";
      EXPECT_EQ(summary.count, values.size()) << what;
      EXPECT_EQ(summary.max, *std::max_element(values.begin(), values.end())) << what;
      EXPECT_NEAR(static_cast<double>(summary.mean.count()), sum / count, 1) << what;
      expect_near(summary.p50, exact(values, 0.5), what);
      expect_near(summary.p90, exact(values, 0.9), what);
      expect_near(summary.p99, exact(values, 0.99), what);
    }
  }
}

TEST(DurationHistogram, ANegativeDurationCountsAsZero) {
  const DurationSummary summary = summary_of({milliseconds(-3), Duration::min()});
  EXPECT_EQ(summary.count, 2U);
  EXPECT_EQ(summary.mean, Duration::zero());
  EXPECT_EQ(summary.max, Duration::zero());
}

TEST(DurationHistogram, TheMaximumIsExactBeyondTheLastBucket) {
  const DurationSummary summary = summary_of({hours(4), hours(1000)});
  EXPECT_EQ(summary.max, hours(1000));
  EXPECT_GE(summary.p99, hours(4));
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
  EXPECT_EQ(summary.mean, Duration(10 * (kAdded + 1) / 8));
}

}  // namespace
}  // namespace service_streamer::support
