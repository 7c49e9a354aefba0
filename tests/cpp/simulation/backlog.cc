#include "simulation/backlog.h"

#include <algorithm>

namespace service_streamer::simulation {

Backlog::Backlog(const Cell& cell, std::uint64_t seed, Length length)
    : length_(length), closed_(cell.traffic.closed()), workload_(cell, seed) {
  const int at_most = length.requests + cell.traffic.clients;
  requests_.reserve(static_cast<std::size_t>(at_most));
}

TimePoint Backlog::next_arrival() const {
  const bool all_came = !closed_ && static_cast<int>(requests_.size()) >= length_.requests;
  return all_came ? TimePoint::max() : workload_.next();
}

void Backlog::arrive() {
  const Arrival arrival = workload_.pop();
  waiting_.push_back(static_cast<int>(requests_.size()));
  requests_.push_back({arrival.at, arrival.client, arrival.items, arrival.items, arrival.items});
  items_ += arrival.items;
}

int Backlog::take(int items, Ranges& ranges) {
  int ending = 0;
  while (items > 0 && !waiting_.empty()) {
    Request& front = request(waiting_.front());
    const int taken = std::min(items, front.to_take);
    ranges.push_back({waiting_.front(), taken});
    front.to_take -= taken;
    items -= taken;
    items_ -= taken;
    if (front.to_take == 0) {
      waiting_.pop_front();
      ++ending;
    }
  }
  return ending;
}

void Backlog::complete(const Ranges& ranges, TimePoint now) {
  int rank = 0;
  for (const Range& range : ranges) {
    Request& done = request(range.request);
    done.to_complete -= range.items;
    if (done.to_complete > 0) continue;
    measure(done, range.request, now);
    workload_.answered(done.client, now, rank++);
  }
}

double Backlog::cost() const {
  if (!closed_) return latency_sum_ / measured_;
  return std::chrono::duration<double>(measured_to_ - measured_from_).count() / measured_items_;
}

void Backlog::measure(const Request& done, int index, TimePoint now) {
  ++answered_;
  if (!closed_) {
    if (index < length_.warm_up) return;
    ++measured_;
    latency_sum_ += std::chrono::duration<double>(now - done.arrived).count();
    return;
  }
  if (answered_ <= length_.warm_up) {
    measured_from_ = now;
  } else if (now > measured_from_) {
    measured_items_ += done.items;
    measured_to_ = now;
  }
}

}  // namespace service_streamer::simulation
