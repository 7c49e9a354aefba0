// Buckets against one queue and against buckets that never share a batch, in 1,152 cells: 8 models, 4 distributions of
// lengths, 1 and 2 workers, batches of 32 and 64, open and closed traffic. Open loads are percent of what full batches
// of one queue can carry. This prints the table of decision 032:
//   simulation_test --gtest_filter='*Bucket*'

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include "simulation/bucket_server.h"
#include "support/sanitizers.h"

namespace service_streamer::simulation {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kStride = support::kSanitized ? 20 : 1;
constexpr int kRequests = 3000;

constexpr PaddedModel kModels[] = {
    {"5 + 0.01 n l", 5e-3, 0, 10e-6},
    {"1 + 0.02 n l", 1e-3, 0, 20e-6},
    {"0.2 + 0.05 n l", 0.2e-3, 0, 50e-6},
    {"20 + 0.001 n l", 20e-3, 0, 1e-6},
    {"5 + 0.05 n + 0.002 n l", 5e-3, 50e-6, 2e-6},
    {"1 + max(8, 0.002 n l)", 1e-3, 0, 2e-6, 8e-3},
    {"3 + 0.005 n l (1 + l/256)", 3e-3, 0, 5e-6, 0, 256},
    {"5 + 0.2 n", 5e-3, 200e-6, 0},
};
constexpr const char* kLengths[] = {"log-normal", "wide log-normal", "two kinds", "equal"};
constexpr int kLoads[] = {-50, -90, -110, 1, 4, 16, 32, 64, 256};  // below 0: open traffic, percent; else clients

Cell cell_of(const PaddedModel& model, Lengths lengths, int workers, int batch_size, int load) {
  Random random(3);
  constexpr int kDraws = 200;
  double full = 0;  // the mean time of a full batch of one queue
  for (int draw = 0; draw < kDraws; ++draw) {
    double longest = 0;
    for (int item = 0; item < batch_size; ++item) longest = std::max(longest, draw_length(lengths, random));
    full += model.service(batch_size, longest) / kDraws;
  }
  Cell cell;
  cell.workers = workers;
  cell.batch_size = batch_size;
  cell.max_latency = milliseconds(100);
  cell.model.per_item = Duration(static_cast<Duration::rep>(1e9 * full / batch_size));
  cell.traffic = {load < 0 ? Pattern::kPoisson : Pattern::kClosed, std::max(-load, 0), std::max(load, 0), Think::kNone};
  return cell;
}

// Ratios of buckets over something else. Below 1 is better.
struct Summary {
  int cells = 0;
  int bad = 0;  // more than 10 % worse
  double log_cost = 0, log_p99 = 0;
  double worst = 0;
  std::string worst_cell;

  void add(const BucketOutcome& buckets, const BucketOutcome& other, const std::string& cell) {
    const double ratio = buckets.cost / other.cost;
    ++cells;
    bad += ratio > 1.1 ? 1 : 0;
    log_cost += std::log(ratio);
    log_p99 += std::log(buckets.p99 / other.p99);
    if (ratio <= worst) return;
    worst = ratio;
    worst_cell = cell;
  }
  double cost() const { return std::exp(log_cost / cells); }
  double p99() const { return std::exp(log_p99 / cells); }
  void print(const std::string& name) const {
    std::printf("%-28s %5d  %6.3f %6.3f  %4d  %6.3f  %s\n", name.c_str(), cells, cost(), p99(), bad, worst,
                worst_cell.c_str());
  }
};

TEST(BucketSimulation, BucketsAreFasterThanOneQueueAndThanBucketsThatNeverShare) {
  std::map<std::string, Summary> over_none, over_strict;
  Summary useful, none, strict, keys_over_none;
  std::size_t index = 0;
  for (const PaddedModel& model : kModels) {
    for (const Lengths lengths : {Lengths::kLogNormal, Lengths::kWide, Lengths::kTwoKinds, Lengths::kEqual}) {
      for (const int workers : {1, 2}) {
        for (const int batch_size : {32, 64}) {
          for (const int load : kLoads) {
            if (index++ % kStride != 0) continue;
            const Cell cell = cell_of(model, lengths, workers, batch_size, load);
            const auto outcome = [&](Grouping grouping) {
              return simulate_buckets(cell, model, lengths, grouping, 1, load == 1 ? kRequests / 4 : kRequests);
            };
            const BucketOutcome plain = outcome(Grouping::kNone), keys = outcome(Grouping::kStrict);
            const BucketOutcome buckets = outcome(Grouping::kBuckets);
            const std::string traffic =
                load < 0 ? "open " + std::to_string(-load) + " %" : std::to_string(load) + " clients";
            const char* const kind = kLengths[static_cast<int>(lengths)];
            const std::string name = std::string(model.name) + ", " + kind + ", " + std::to_string(workers) +
                                     " workers, " + std::to_string(batch_size) + ", " + traffic;
            none.add(buckets, plain, name);
            strict.add(buckets, keys, name);
            keys_over_none.add(keys, plain, name);
            if (model.per_unit > 0) useful.add(buckets, plain, name);
            for (const std::string& part : {traffic, std::string(kind), std::string(model.name)}) {
              over_none[part].add(buckets, plain, name);
              over_strict[part].add(buckets, keys, name);
            }
          }
        }
      }
    }
  }
  std::printf("%-28s %5s  %6s %6s  %4s  %6s\n", "over one queue", "cells", "cost", "p99", "bad", "worst");
  for (const auto& [name, summary] : over_none) summary.print(name);
  none.print("all");
  std::printf("over buckets that never share\n");
  for (const auto& [name, summary] : over_strict) summary.print(name);
  strict.print("all");
  std::printf("buckets that never share over one queue\n");
  keys_over_none.print("all");
  EXPECT_LT(none.cost(), 0.8);
  EXPECT_LT(none.p99(), 0.8);
  EXPECT_LT(useful.worst, 1.1) << useful.worst_cell;
  EXPECT_LT(none.worst, 1.5) << none.worst_cell;
  EXPECT_LT(strict.cost(), 0.9);
}

constexpr const PaddedModel& kModel = kModels[0];

TEST(BucketSimulation, SameSeedGivesTheSameOutcome) {
  const Cell cell = cell_of(kModel, Lengths::kWide, 2, 32, -90);
  const auto outcome = [&](int seed) {
    return simulate_buckets(cell, kModel, Lengths::kWide, Grouping::kBuckets, static_cast<std::uint64_t>(seed), 500);
  };
  EXPECT_EQ(outcome(7).cost, outcome(7).cost);
  EXPECT_NE(outcome(7).cost, outcome(8).cost);
}

TEST(BucketSimulation, ALoneClientNeverWaits) {
  const Cell cell = cell_of(kModel, Lengths::kEqual, 1, 32, 1);
  const BucketOutcome outcome = simulate_buckets(cell, kModel, Lengths::kEqual, Grouping::kBuckets, 1, 500);
  EXPECT_NEAR(outcome.p99, kModel.service(1, 40), 1e-6);
}

}  // namespace
}  // namespace service_streamer::simulation
