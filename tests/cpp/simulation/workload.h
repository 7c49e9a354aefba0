#pragma once

// The requests of one cell, in the order of arrival. Open traffic does not depend on the results, and each closed
// client has its own random stream. So all policies get the same requests.

#include <queue>
#include <vector>

#include "simulation/matrix.h"
#include "simulation/random.h"

namespace service_streamer::simulation {

struct Arrival {
  TimePoint at;
  int client = 0;  // closed traffic
  int items = 1;
};

class Workload {
 public:
  Workload(const Cell& cell, std::uint64_t seed);

  // TimePoint::max() while all clients wait for results.
  TimePoint next() const { return closed_ ? next_return() : open_next_; }
  Arrival pop();

  // `rank` callers of the same batch were answered before this one.
  void answered(int client, TimePoint now, int rank);

 private:
  struct Return {
    TimePoint at;
    int client;
    bool operator>(const Return& other) const { return at != other.at ? at > other.at : client > other.client; }
  };

  TimePoint next_return() const { return returns_.empty() ? TimePoint::max() : returns_.top().at; }
  int draw_items(Random& random) const;
  void schedule_open();

  const Cell& cell_;
  const bool closed_;

  std::vector<Random> clients_;
  std::priority_queue<Return, std::vector<Return>, std::greater<>> returns_;

  Random open_random_;
  TimePoint open_next_;
  TimePoint phase_end_;   // the end of the on phase
  Duration mean_gap_{0};  // between arrivals (of groups) in the on phase
  Duration mean_on_{0};   // the mean length of the on phase
  int left_in_group_ = 0;
};

}  // namespace service_streamer::simulation
