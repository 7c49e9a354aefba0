#pragma once

// The cells in which the batching policies are compared. There are 48 servers (4 models x 3 worker counts x 2 batch
// sizes x 2 max_latencies), each under 153 loads (3 request sizes x 51 traffics, 11 open and 40 closed): 7,344 cells.

#include <string>
#include <vector>

#include "service_streamer/base/clock.h"

namespace service_streamer::simulation {

// A batch of n items takes fixed + n * per_item.
struct Model {
  Duration fixed{0};
  Duration per_item{0};

  Duration service(int items) const { return fixed + items * per_item; }
};

enum class Sizes {
  kOne,
  kUpTo16,  // uniform 1 to 16
  kMixed,   // one request of 16 has 3 x batch_size items, the others 1 to 4
};

enum class Pattern { kPoisson, kOnOff, kGroups, kClosed };

enum class Think {
  kNone,      // 30 us, and 10 us more for each caller of the batch that was answered before (they take the GIL in turn)
  kExp500us,  // exp(0.5 ms)
  k1msExp5,   // 1 ms + exp(5 ms)
  k1msExp50,  // 1 ms + exp(50 ms)
};

struct Traffic {
  Pattern pattern = Pattern::kPoisson;
  int load_percent = 0;        // open traffic: percent of the throughput with full batches
  int clients = 0;             // closed traffic
  Think think = Think::kNone;  // closed traffic

  bool closed() const { return pattern == Pattern::kClosed; }
};

struct Cell {
  Model model;
  int workers = 1;
  int batch_size = 64;
  Duration max_latency{0};
  Sizes sizes = Sizes::kOne;
  Traffic traffic;
};

std::vector<Cell> full_matrix();

double mean_items(const Cell& cell);
std::string describe(const Cell& cell);

}  // namespace service_streamer::simulation
