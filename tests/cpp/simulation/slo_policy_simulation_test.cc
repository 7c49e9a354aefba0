// A target latency on the 48 servers of simulation/matrix.h, at 80 % and 130 % of what a server can answer within it,
// beside the plain queue. This prints the table of the decision:
//   simulation_test --gtest_filter='*Slo*'

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "simulation/slo_server.h"
#include "support/sanitizers.h"

namespace service_streamer::simulation {
namespace {

using std::chrono::milliseconds;

constexpr int kRequests = 20000;

Duration target(const Cell& cell, int kind) {
  const double between = 1 + 1.0 / cell.workers;
  const auto times = [](Duration value, double factor) {
    return Duration(static_cast<Duration::rep>(static_cast<double>(value.count()) * factor));
  };
  if (kind == 0) return times(cell.model.service(cell.batch_size / 2), between * 1.0001);
  if (kind == 1) return times(cell.model.service(cell.batch_size), 1.2 * between);
  return times(cell.model.service(cell.batch_size), 4);
}

TEST(SloPolicySimulation, Explore) {
  const char* noises[] = {"none", "uniform", "stragglers"};
  for (const Sizes sizes : {Sizes::kOne, Sizes::kUpTo16}) {
    for (const Noise noise : {Noise::kNone, Noise::kUniform, Noise::kStragglers}) {
      for (const int kind : {0, 1, 2}) {
        for (const int load : {80, 130}) {
          double worst_share = 1, worst_good = 9, sum_good = 0, plain_good = 0, sum_refused = 0, worst_refused = 0, sum_share = 0;
          double plain_share = 0, ended = 0;
          int bad_share = 0, bad_good = 0, n = 0;
          std::vector<Cell> cells = full_matrix();
          for (std::size_t i = 0; i < cells.size(); i += 153) {
            Cell cell = cells[i];
            cell.sizes = sizes;
            if (sizes != Sizes::kOne && cell.batch_size < 64) continue;
            if (getenv("V") == nullptr && cell.max_latency > milliseconds(5)) continue;
            const Duration slo = target(cell, kind);
            const double capacity = capacity_within(cell, slo);
            const double full = cell.workers * cell.batch_size / std::chrono::duration<double>(cell.model.service(cell.batch_size)).count();
            cell.traffic = {Pattern::kPoisson, static_cast<int>(load * capacity / full + .5), 0, Think::kNone};
            const SloOutcome with = simulate_slo(cell, slo, noise, true, 1 + i, kRequests);
            const SloOutcome without = simulate_slo(cell, slo, noise, false, 1 + i, kRequests);
            const double offered = cell.traffic.load_percent / 100. * full;
            const double good = with.goodput() / std::min(capacity, offered);
            ++n;
            sum_share += with.share_in_time();
            sum_good += good;
            plain_good += without.goodput() / std::min(capacity, offered);
            plain_share += without.share_in_time();
            sum_refused += with.refused_share();
            ended += double(with.ended) / with.arrived;
            worst_refused = std::max(worst_refused, with.refused_share());
            bad_share += with.share_in_time() < .99;
            bad_good += good < .9;
            worst_share = std::min(worst_share, with.share_in_time());
            worst_good = std::min(worst_good, good);
            if (getenv("V")) std::printf("   %.4f good %.3f (plain %.4f %.3f) refused %.3f ended %.3f slo %.3g ms cap %.0f  %s\n", with.share_in_time(), good,
              without.share_in_time(), without.goodput() / std::min(capacity, offered), with.refused_share(), double(with.ended) / with.arrived, slo.count() / 1e6, capacity, describe(cell).c_str());
          }
          std::printf("sizes %d %-10s slo %d load %3d: in time mean %.4f worst %.4f bad %2d | goodput mean %.3f worst %.3f bad %2d | refused mean %.3f worst %.3f ended %.4f | plain in time %.3f goodput %.3f\n",
            int(sizes), noises[int(noise)], kind, load, sum_share / n, worst_share, bad_share, sum_good / n, worst_good, bad_good, sum_refused / n, worst_refused, ended / n, plain_share / n, plain_good / n);
        }
      }
    }
  }
}

}  // namespace
}  // namespace service_streamer::simulation
