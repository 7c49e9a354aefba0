#pragma once

// A discrete-event simulation of a server whose requests have a target latency, with SloPolicy or without.

#include <cstdint>

#include "service_streamer/base/clock.h"
#include "simulation/matrix.h"

namespace service_streamer::simulation {

// How the time of a batch differs from that of its size.
enum class Noise {
  kNone,
  kUniform,     // by up to 20 %
  kStragglers,  // by up to 10 %, and one batch of 100 takes three times as long
};

// What became of the requests, after a warm-up.
struct SloOutcome {
  int arrived = 0;
  int refused = 0;  // on arrival
  int ended = 0;    // in the queue, because they could not be in time any more
  int answered = 0;
  int in_time = 0;  // of those answered
  double seconds = 0;
  double items_in_time = 0;

  double share_in_time() const { return answered > 0 ? static_cast<double>(in_time) / answered : 1; }
  double refused_share() const { return static_cast<double>(refused + ended) / arrived; }
  double goodput() const { return items_in_time / seconds; }  // items per second
};

// The items per second that a server of this cell can answer within the target: with the largest batches that follow
// each other fast enough.
double capacity_within(const Cell& cell, Duration slo);

// `with_slo`: false for the plain queue.
SloOutcome simulate_slo(const Cell& cell, Duration slo, Noise noise, bool with_slo, std::uint64_t seed, int requests);

}  // namespace service_streamer::simulation
