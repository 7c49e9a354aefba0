#pragma once

#include <cstddef>
#include <functional>
#include <map>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch.h"
#include "service_streamer/batching/request.h"

namespace service_streamer {

// The bounded queue of requests, first in first out within a priority, and the waiting room before it. Only moves and
// counts: no lock, no clock; the engine calls it under its mutex.
//
// The bound counts items that no worker has yet. Whoever finds it full may stay in the waiting room, from which admit()
// takes strictly in order, so that a large request is not starved by small ones.
class RequestQueue {
 public:
  explicit RequestQueue(std::size_t max_items) : max_items_(max_items) {}

  bool has_room(const Request& request) const;
  void push(Request& request);
  void push_waiting(Request& request);

  // One that had left it whole, at its old place, whether there is room or not. Quick for what was the first; many had better
  // come back the latest first.
  void push_again(Request& request);

  // One that had left it whole and is to run alone, whether there is room or not. It goes after all others.
  void push_alone(Request& request);

  // Moves the first of the waiting room into the queue if it fits, and returns it; nullptr: nobody moved.
  Request* admit();

  // Takes a request out, wherever it is; nothing for one that is not in here.
  void remove(Request& request);

  // The request that goes next; the queue must not be empty.
  Request& front();

  // Cuts up to `limit` items off the front request, which leaves the queue with its last item.
  RequestRange take(std::size_t limit);

  // Without those that run alone.
  std::size_t items() const { return items_; }
  int requests() const { return requests_; }
  int waiting() const { return waiting_count_; }

  std::size_t alone_items() const { return alone_items_; }
  int alone_requests() const { return alone_count_; }
  bool empty() const { return requests_ == 0 && alone_count_ == 0 && waiting_count_ == 0; }

  // The earliest arrival; TimePoint::max(): nothing waits.
  TimePoint oldest() const;
  // The highest priority in the queue, which must not be empty.
  int top_priority() const;

  std::size_t max_items() const { return max_items_; }

 private:
  using Lanes = std::map<int, QueueList, std::greater<>>;

  Lanes::const_iterator first_lane() const;
  void unlink(Request& request);

  const std::size_t max_items_;
  Lanes lanes_;  // by priority; some may be empty
  QueueList alone_;
  QueueList waiting_;
  std::size_t items_ = 0;
  std::size_t alone_items_ = 0;
  int alone_count_ = 0;
  int requests_ = 0;
  int waiting_count_ = 0;
};

}  // namespace service_streamer
