#pragma once

#include <cstddef>
#include <functional>
#include <map>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch.h"
#include "service_streamer/batching/request.h"

namespace service_streamer {

// The bounded queue of requests, first in first out within a priority, and the waiting room in front of it. It has no
// lock and no clock; the engine calls it under its mutex. No call blocks. push(), push_again() and admit() may throw
// std::bad_alloc.
//
// The bound counts items that are not in a batch yet. A request for which there is no room may wait in the waiting
// room. admit() takes requests from there strictly in order, so small requests cannot starve a large one.
class RequestQueue {
 public:
  explicit RequestQueue(std::size_t max_items) : max_items_(max_items) {}

  bool has_room(const Request& request) const;
  void push(Request& request);
  void push_waiting(Request& request);

  // Puts back a request of which all items had left the queue, at its old place. Ignores the bound. Looks for the
  // place from the front, so of several requests put back the latest first.
  void push_again(Request& request);

  // Puts back a request of which all items had left the queue, to run alone after all others. Ignores the bound.
  void push_alone(Request& request);

  // Moves the first request of the waiting room into the queue if there is room, and returns it; otherwise returns
  // nullptr.
  Request* admit();

  // Removes a request from the queue or the waiting room. Does nothing if it is in neither.
  void remove(Request& request);

  // The request that goes next. The queue must not be empty.
  Request& front();

  // Cuts up to `limit` items off the front request. The request leaves the queue with its last item.
  RequestRange take(std::size_t limit);

  // Without requests that run alone.
  std::size_t items() const { return items_; }
  int requests() const { return requests_; }
  int waiting() const { return waiting_count_; }

  std::size_t alone_items() const { return alone_items_; }
  int alone_requests() const { return alone_count_; }
  bool empty() const { return requests_ == 0 && alone_count_ == 0 && waiting_count_ == 0; }

  // The earliest arrival of a queued request; TimePoint::max() if there is none.
  TimePoint oldest() const;
  // The highest priority in the queue. The queue must not be empty.
  int top_priority() const;

  std::size_t max_items() const { return max_items_; }

 private:
  using Lanes = std::map<int, QueueList, std::greater<>>;

  Lanes::const_iterator first_lane() const;
  void unlink(Request& request);

  const std::size_t max_items_;
  Lanes lanes_;  // by priority; a lane may be empty
  QueueList alone_;
  QueueList waiting_;
  std::size_t items_ = 0;
  std::size_t alone_items_ = 0;
  int alone_count_ = 0;
  int requests_ = 0;
  int waiting_count_ = 0;
};

}  // namespace service_streamer
