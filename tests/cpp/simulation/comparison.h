#pragma once

// How the adaptive policy does in a cell beside the other three: the same requests for all of them.

#include <cstdint>

#include "simulation/server.h"

namespace service_streamer::simulation {

// Backlog::cost() under each rule: smaller is better.
struct Costs {
  double adaptive = 0;
  double greedy = 0;
  double window = 0;
  double original = 0;

  double best_other() const;
  // 1.1: adaptive is 10 % worse than the best of the others.
  double ratio() const { return adaptive / best_other(); }
};

// `effort` multiplies the length of the run.
Costs compare(const Cell& cell, std::uint64_t seed, int effort);

// As above with effort 1, and with more where that comes near the limits, so that chance decides
// nothing.
Costs compare_closely(const Cell& cell, std::uint64_t seed);

}  // namespace service_streamer::simulation
