#include "simulation/matrix.h"

#include <cstdio>

namespace service_streamer::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Model kModels[] = {
    {microseconds(5000), microseconds(200)},
    {microseconds(20000), microseconds(50)},
    {microseconds(200), microseconds(1000)},
    {microseconds(5), microseconds(1)},
};

std::vector<Traffic> all_traffic() {
  std::vector<Traffic> all;
  const auto open = [&all](Pattern pattern, std::initializer_list<int> loads) {
    for (const int load : loads) all.push_back({pattern, load, 0, Think::kNone});
  };
  open(Pattern::kPoisson, {2, 10, 30, 50, 70, 90});
  open(Pattern::kOnOff, {10, 20});
  open(Pattern::kGroups, {10, 30, 70});
  for (const Think think : {Think::kNone, Think::kExp500us, Think::k1msExp5, Think::k1msExp50}) {
    for (const int clients : {1, 2, 4, 8, 16, 32, 64, 96, 128, 256}) {
      all.push_back({Pattern::kClosed, 0, clients, think});
    }
  }
  return all;
}

double milliseconds_of(Duration value) {
  return std::chrono::duration<double, std::milli>(value).count();
}

std::string describe(const Traffic& traffic) {
  const std::string load = std::to_string(traffic.load_percent) + " %";
  switch (traffic.pattern) {
    case Pattern::kPoisson:
      return "Poisson " + load;
    case Pattern::kOnOff:
      return "on/off " + load;
    case Pattern::kGroups:
      return "groups of 16 " + load;
    case Pattern::kClosed:
      break;
  }
  std::string clients = "closed " + std::to_string(traffic.clients);
  switch (traffic.think) {
    case Think::kNone:
      return clients;
    case Think::kExp500us:
      return clients + " think exp(0.5)";
    case Think::k1msExp5:
      return clients + " think 1+exp(5)";
    case Think::k1msExp50:
      return clients + " think 1+exp(50)";
  }
  return clients;
}

}  // namespace

std::vector<Cell> full_matrix() {
  std::vector<Cell> cells;
  const std::vector<Traffic> traffics = all_traffic();
  for (const Model& model : kModels) {
    for (const int workers : {1, 2, 4}) {
      for (const int batch_size : {64, 8}) {
        for (const int latency_ms : {5, 100}) {
          for (const Sizes sizes : {Sizes::kOne, Sizes::kUpTo16, Sizes::kMixed}) {
            for (const Traffic& traffic : traffics) {
              cells.push_back({model, workers, batch_size, milliseconds(latency_ms), sizes, traffic});
            }
          }
        }
      }
    }
  }
  return cells;
}

double mean_items(const Cell& cell) {
  switch (cell.sizes) {
    case Sizes::kOne:
      return 1;
    case Sizes::kUpTo16:
      return 8.5;
    case Sizes::kMixed:
      return (3.0 * cell.batch_size + 15 * 2.5) / 16;
  }
  return 1;
}

std::string describe(const Cell& cell) {
  constexpr const char* kSizes[] = {"1", "1-16", "mixed"};
  char text[160];
  std::snprintf(text, sizeof text, "S=%g+%gn ms, %d workers, M=%d, L=%g ms, items %s, %s",
                milliseconds_of(cell.model.fixed), milliseconds_of(cell.model.per_item), cell.workers, cell.batch_size,
                milliseconds_of(cell.max_latency), kSizes[static_cast<int>(cell.sizes)],
                describe(cell.traffic).c_str());
  return text;
}

}  // namespace service_streamer::simulation
