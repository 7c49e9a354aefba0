#include "simulation/workload.h"

namespace service_streamer::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kGroup = 16;
constexpr int kOffOverOn = 4;         // on/off traffic: the off phase is four times as long as the on phase
constexpr int kBusyFullBatches = 10;  // on/off traffic: the mean on phase, in service times of full batches

}  // namespace

Workload::Workload(const Cell& cell, std::uint64_t seed)
    : cell_(cell), closed_(cell.traffic.closed()), open_random_(seed) {
  if (closed_) {
    for (int client = 0; client < cell.traffic.clients; ++client) {
      clients_.emplace_back(seed + 0x100000001b3u * static_cast<std::uint64_t>(client + 1));
      answered(client, TimePoint{}, client);
    }
    return;
  }
  const Duration full = cell.model.service(cell.batch_size);
  const double capacity =
      static_cast<double>(cell.workers * cell.batch_size) / static_cast<double>(full.count()) / mean_items(cell);
  double gap = 100.0 / cell.traffic.load_percent / capacity;
  if (cell.traffic.pattern == Pattern::kGroups) gap *= kGroup;
  if (cell.traffic.pattern == Pattern::kOnOff) {
    gap /= 1 + kOffOverOn;
    mean_on_ = kBusyFullBatches * full;
    phase_end_ = TimePoint(open_random_.exponential(mean_on_));
  }
  mean_gap_ = Duration(static_cast<Duration::rep>(gap));
  schedule_open();
}

Arrival Workload::pop() {
  if (closed_) {
    const Return top = returns_.top();
    returns_.pop();
    return {top.at, top.client, draw_items(clients_[static_cast<std::size_t>(top.client)])};
  }
  const Arrival arrival{open_next_, 0, draw_items(open_random_)};
  if (left_in_group_ > 0) {
    --left_in_group_;
  } else {
    schedule_open();
  }
  return arrival;
}

void Workload::answered(int client, TimePoint now, int rank) {
  if (!closed_) return;
  Random& random = clients_[static_cast<std::size_t>(client)];
  Duration think{0};
  switch (cell_.traffic.think) {
    case Think::kNone:
      think = microseconds(30 + 10 * rank);
      break;
    case Think::kExp500us:
      think = random.exponential(microseconds(500));
      break;
    case Think::k1msExp5:
      think = milliseconds(1) + random.exponential(milliseconds(5));
      break;
    case Think::k1msExp50:
      think = milliseconds(1) + random.exponential(milliseconds(50));
      break;
  }
  returns_.push({now + think, client});
}

int Workload::draw_items(Random& random) const {
  switch (cell_.sizes) {
    case Sizes::kOne:
      return 1;
    case Sizes::kUpTo16:
      return random.between(1, 16);
    case Sizes::kMixed:
      return random.between(1, 16) == 1 ? 3 * cell_.batch_size : random.between(1, 4);
  }
  return 1;
}

void Workload::schedule_open() {
  open_next_ += open_random_.exponential(mean_gap_);
  if (cell_.traffic.pattern == Pattern::kGroups) left_in_group_ = kGroup - 1;
  if (cell_.traffic.pattern != Pattern::kOnOff) return;
  // An arrival after the end of the phase moves by as much into the next phase.
  while (open_next_ > phase_end_) {
    const Duration off = open_random_.exponential(kOffOverOn * mean_on_);
    open_next_ += off;
    phase_end_ += off + open_random_.exponential(mean_on_);
  }
}

}  // namespace service_streamer::simulation
