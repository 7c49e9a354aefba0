#include "simulation/comparison.h"

namespace service_streamer::simulation {
namespace {

constexpr int kRequests = 5000;
constexpr int kRequestsPerClient = 20;  // more clients need longer runs
constexpr int kWarmUpShare = 4;

// A run is repeated if its ratio is at least from_ratio, and is then `effort` times as long.
struct Closer {
  double from_ratio;
  int effort;
};
constexpr Closer kCloser[] = {{1.04, 6}, {1.07, 40}};

}  // namespace

Costs compare(const Cell& cell, std::uint64_t seed, int effort) {
  const int requests = effort * (kRequests + kRequestsPerClient * cell.traffic.clients);
  const Length length{requests, requests / kWarmUpShare};
  return {simulate_policy(cell, PolicyKind::kAdaptive, seed, length),
          simulate_policy(cell, PolicyKind::kGreedy, seed, length),
          simulate_policy(cell, PolicyKind::kWindow, seed, length)};
}

Costs compare_closely(const Cell& cell, std::uint64_t seed) {
  Costs costs = compare(cell, seed, 1);
  for (const Closer& closer : kCloser) {
    if (costs.ratio() > closer.from_ratio) costs = compare(cell, seed, closer.effort);
  }
  return costs;
}

}  // namespace service_streamer::simulation
