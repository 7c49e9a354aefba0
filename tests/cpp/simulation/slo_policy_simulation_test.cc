// A target time on the 48 servers of simulation/matrix.h, at 80 % and 130 % of what a server can answer within it, with
// SloPolicy and with the plain queue. Requests have one item and come as a Poisson process. This prints the table of
// decision 031:
//   simulation_test --gtest_filter='*Slo*'

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "simulation/slo_server.h"
#include "support/sanitizers.h"

namespace service_streamer::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kStride = support::kSanitized ? 5 : 1;
constexpr std::size_t kLoads = 153;  // of a server in full_matrix()
constexpr int kRequests = 20000;

enum class Target {
  kLoose,    // four full batches
  kTight,    // 1.2 times the least that allows full batches to follow each other
  kTighter,  // only half of a full batch can follow another
};

constexpr const char* kTargets[] = {"loose", "tight", "tighter"};
constexpr const char* kNoises[] = {"none", "20 %", "stragglers"};

double seconds_of(Duration value) {
  return std::chrono::duration<double>(value).count();
}

Duration target_of(const Cell& cell, Target target) {
  const double cycle = 1 + 1.0 / cell.workers;
  const auto full = static_cast<double>(cell.model.service(cell.batch_size).count());
  const auto half = static_cast<double>(cell.model.service(cell.batch_size / 2).count());
  const double times[] = {4 * full, 1.2 * cycle * full, 1.0001 * cycle * half};
  return Duration(static_cast<Duration::rep>(times[static_cast<int>(target)]));
}

// Over the servers: the share of the answered requests that were in time, the goodput over what is possible, and the
// share of the requests that were refused.
struct Summary {
  int servers = 0;
  double in_time = 0, least_in_time = 1;
  double goodput = 0, least_goodput = 1;
  double refused = 0;

  void add(const SloOutcome& outcome, double possible) {
    const double good = std::min(1.0, outcome.goodput() / possible);
    ++servers;
    in_time += outcome.share_in_time();
    least_in_time = std::min(least_in_time, outcome.share_in_time());
    goodput += good;
    least_goodput = std::min(least_goodput, good);
    refused += outcome.refused_share();
  }
};

struct Row {
  Summary with;
  Summary plain;
};

Row run(Target target, Noise noise, int load_percent) {
  Row row;
  const std::vector<Cell> cells = full_matrix();
  for (std::size_t i = 0; i < cells.size(); i += kStride * kLoads) {
    Cell cell = cells[i];
    const Duration slo = target_of(cell, target);
    const double full = cell.workers * cell.batch_size / seconds_of(cell.model.service(cell.batch_size));
    const double capacity = capacity_within(cell, slo);
    cell.traffic = {Pattern::kPoisson, static_cast<int>(std::lround(load_percent * capacity / full)), 0, Think::kNone};
    const double possible = std::min(capacity, cell.traffic.load_percent * full / 100);
    row.with.add(simulate_slo(cell, slo, noise, true, i + 1, kRequests), possible);
    row.plain.add(simulate_slo(cell, slo, noise, false, i + 1, kRequests), possible);
  }
  const Summary& with = row.with;
  const double n = with.servers;
  std::printf("%-8s %-11s %4d %%  %8.4f %8.4f  %8.3f %8.3f  %8.3f  %8.4f %8.3f\n", kTargets[static_cast<int>(target)],
              kNoises[static_cast<int>(noise)], load_percent, with.in_time / n, with.least_in_time, with.goodput / n,
              with.least_goodput, with.refused / n, row.plain.in_time / n, row.plain.goodput / n);
  return row;
}

TEST(SloPolicySimulation, AcceptedRequestsAreInTimeAndOverloadCostsLittleThroughput) {
  std::printf("%-8s %-11s %6s  %8s %8s  %8s %8s  %8s  %8s %8s\n", "target", "noise", "load", "in time", "least",
              "goodput", "least", "refused", "plain", "goodput");
  for (const Target target : {Target::kLoose, Target::kTight, Target::kTighter}) {
    for (const Noise noise : {Noise::kNone, Noise::kUniform, Noise::kStragglers}) {
      for (const int load : {80, 130}) {
        const Row row = run(target, noise, load);
        const double n = row.with.servers;
        // A straggler makes its own requests late, 1 % of all, and no policy can foresee it.
        const bool hard = noise == Noise::kStragglers || target == Target::kTighter;
        EXPECT_GE(row.with.in_time / n, hard ? 0.98 : 0.99);
        if (target == Target::kTighter) continue;
        EXPECT_GE(row.with.goodput / n, 0.9);
        EXPECT_GE(row.with.least_goodput, target == Target::kLoose ? 0.85 : 0.4);
        EXPECT_LT(row.plain.goodput / n, load == 130 ? 0.05 : 1);
      }
    }
  }
}

constexpr Cell kServer{{milliseconds(5), microseconds(200)},    1, 64, milliseconds(5), Sizes::kOne,
                       {Pattern::kPoisson, 80, 0, Think::kNone}};

TEST(SloPolicySimulation, SameSeedGivesTheSameOutcome) {
  const SloOutcome first = simulate_slo(kServer, milliseconds(40), Noise::kUniform, true, 7, 2000);
  const SloOutcome second = simulate_slo(kServer, milliseconds(40), Noise::kUniform, true, 7, 2000);
  EXPECT_EQ(first.in_time, second.in_time);
  EXPECT_EQ(first.seconds, second.seconds);
}

TEST(SloPolicySimulation, BurstsAreRefusedOnlyInPart) {
  Cell cell = kServer;
  for (const Pattern pattern : {Pattern::kOnOff, Pattern::kGroups}) {
    cell.traffic = {pattern, pattern == Pattern::kOnOff ? 40 : 70, 0, Think::kNone};
    const SloOutcome outcome = simulate_slo(cell, milliseconds(60), Noise::kUniform, true, 1, kRequests);
    EXPECT_GE(outcome.share_in_time(), 0.99) << describe(cell);
    EXPECT_LE(outcome.refused_share(), pattern == Pattern::kOnOff ? 0.5 : 0.05) << describe(cell);
  }
}

TEST(SloPolicySimulation, ATargetBelowTheModelsOwnTimeLetsOnlyProbesThrough) {
  const SloOutcome outcome = simulate_slo(kServer, milliseconds(3), Noise::kNone, true, 1, kRequests);
  EXPECT_EQ(outcome.in_time, 0);
  EXPECT_GT(outcome.answered, 50);
  EXPECT_GT(outcome.refused_share(), 0.98);
}

}  // namespace
}  // namespace service_streamer::simulation
