#pragma once

// What waits in a simulated server: whole requests in the order they came, cut into batches by
// items, and what has been measured so far.

#include <deque>
#include <vector>

#include "simulation/workload.h"

namespace service_streamer::simulation {

// How many requests a run goes through; those before `warm_up` are not measured.
struct Length {
  int requests = 0;
  int warm_up = 0;
};

// Part of a batch: so many items of one request.
struct Piece {
  int request;
  int items;
};

using Pieces = std::vector<Piece>;

class Backlog {
 public:
  Backlog(const Cell& cell, std::uint64_t seed, Length length);

  // The run is over when every request of open traffic, or as many of closed, have been answered.
  bool finished() const { return answered_ >= length_.requests; }
  TimePoint next_arrival() const;

  // Takes the next arrival into the queue.
  void arrive();

  int items() const { return items_; }
  int requests() const { return static_cast<int>(waiting_.size()); }
  TimePoint oldest() const { return request(waiting_.front()).arrived; }

  // Cuts up to `items` items off the front into `pieces`; returns how many requests end in them.
  int take(int items, Pieces& pieces);

  // The items came back: answers the requests that are now complete.
  void complete(const Pieces& pieces, TimePoint now);

  // Mean latency in seconds for open traffic; seconds per item for closed. Smaller is better.
  double cost() const;

 private:
  struct Request {
    TimePoint arrived;
    int client;
    int items;
    int to_take;
    int to_complete;
  };

  const Request& request(int index) const { return requests_[static_cast<std::size_t>(index)]; }
  Request& request(int index) { return requests_[static_cast<std::size_t>(index)]; }
  void measure(const Request& done, int index, TimePoint now);

  const Length length_;
  const bool closed_;
  Workload workload_;
  std::vector<Request> requests_;
  std::deque<int> waiting_;
  int items_ = 0;

  int answered_ = 0;
  int measured_ = 0;
  double latency_sum_ = 0;
  double measured_items_ = 0;
  TimePoint measured_from_;
  TimePoint measured_to_;
};

}  // namespace service_streamer::simulation
