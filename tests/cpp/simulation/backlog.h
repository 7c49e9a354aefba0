#pragma once

// The queue of a simulated server and its measurements. Requests are served in the order of arrival and cut into
// batches by items.

#include <deque>
#include <vector>

#include "simulation/workload.h"

namespace service_streamer::simulation {

// The length of a run in requests. The first `warm_up` requests are not measured.
struct Length {
  int requests = 0;
  int warm_up = 0;
};

// Items of one request in a batch.
struct Range {
  int request;
  int items;
};

using Ranges = std::vector<Range>;

class Backlog {
 public:
  Backlog(const Cell& cell, std::uint64_t seed, Length length);

  // True when as many requests have been answered as the run is long.
  bool finished() const { return answered_ >= length_.requests; }
  TimePoint next_arrival() const;

  // Puts the next arrival into the queue.
  void arrive();

  int items() const { return items_; }
  int requests() const { return static_cast<int>(waiting_.size()); }
  TimePoint oldest() const { return request(waiting_.front()).arrived; }

  // Moves up to `items` items from the front into `ranges`. Returns the number of requests whose last item is in them.
  int take(int items, Ranges& ranges);

  // The ranges are back: answers the requests that are now complete.
  void complete(const Ranges& ranges, TimePoint now);

  // Smaller is better. Open traffic: the mean latency in seconds. Closed traffic: seconds per item.
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
