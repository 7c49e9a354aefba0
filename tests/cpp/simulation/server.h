#pragma once

// A discrete-event simulation of a server in one cell, with a BatchPolicy.

#include <cstdint>

#include "service_streamer/batching/batch_policy.h"
#include "simulation/backlog.h"
#include "simulation/matrix.h"

namespace service_streamer::simulation {

// How late a thread wakes up from a timed sleep.
inline constexpr Duration kTimerOvershoot = std::chrono::microseconds(60);

// Returns Backlog::cost().
double simulate_policy(const Cell& cell, PolicyKind kind, std::uint64_t seed, Length length);

}  // namespace service_streamer::simulation
