#pragma once

// Compares the adaptive policy with the other two rules in one cell. All of them get the same requests.

#include <algorithm>
#include <cstdint>

#include "simulation/server.h"

namespace service_streamer::simulation {

// Backlog::cost() under each rule. Smaller is better.
struct Costs {
  double adaptive = 0;
  double greedy = 0;
  double window = 0;

  double best_other() const { return std::min(greedy, window); }
  // The cost of adaptive over that of the best other rule.
  double ratio() const { return adaptive / best_other(); }
};

// `effort` multiplies the length of the run.
Costs compare(const Cell& cell, std::uint64_t seed, int effort);

// The same with effort 1. If the result is near the limits of the test, repeats it with more effort, so that chance
// does not decide.
Costs compare_closely(const Cell& cell, std::uint64_t seed);

}  // namespace service_streamer::simulation
