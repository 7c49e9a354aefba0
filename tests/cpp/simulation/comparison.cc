#include "simulation/comparison.h"

#include <algorithm>

namespace service_streamer::simulation {
namespace {

constexpr int kRequests = 5000;
constexpr int kRequestsPerClient = 20;  // more clients make longer cycles
constexpr int kWarmUpShare = 4;
constexpr double kNearTheLimit = 1.04;
constexpr int kCloseEffort = 6;

}  // namespace

double Costs::best_other() const {
  return std::min({greedy, window, original});
}

Costs compare(const Cell& cell, std::uint64_t seed, int effort) {
  const int requests = effort * (kRequests + kRequestsPerClient * cell.traffic.clients);
  const Length length{requests, requests / kWarmUpShare};
  return {simulate_policy(cell, PolicyKind::kAdaptive, seed, length),
          simulate_policy(cell, PolicyKind::kGreedy, seed, length),
          simulate_policy(cell, PolicyKind::kWindow, seed, length), simulate_original(cell, seed, length)};
}

Costs compare_closely(const Cell& cell, std::uint64_t seed) {
  const Costs costs = compare(cell, seed, 1);
  return costs.ratio() > kNearTheLimit ? compare(cell, seed, kCloseEffort) : costs;
}

}  // namespace service_streamer::simulation
