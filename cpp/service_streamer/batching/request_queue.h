#pragma once

#include <cstddef>
#include <functional>
#include <map>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch.h"
#include "service_streamer/batching/request.h"

namespace service_streamer {

// The bounded queue of requests, and the waiting room in front of it. It has no lock and no clock; the engine calls it
// under its mutex. No call blocks. push(), push_waiting() and push_again() may throw std::bad_alloc.
//
// Requests of one priority are first in, first out. A higher priority goes first. With `ageing`, a request gains one
// priority for each such time that it has waited: the request with the least `arrived - priority * ageing` goes first.
//
// The bound counts items that are not in a batch yet. It holds for the items of each priority together with those of
// higher priorities, so that many requests of a low priority never keep out one of a high priority. A request for which
// there is no room may wait in the waiting room. admit() takes the highest priority first, and within it strictly in
// order, so small requests cannot starve a large one.
class RequestQueue {
 public:
  // Duration::max(): no ageing.
  explicit RequestQueue(std::size_t max_items, Duration ageing = Duration::max())
      : max_items_(max_items), ageing_(ageing) {}

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
  // True if a request of a higher priority than that arrived in the last seconds. The queue must not be empty.
  bool expects_higher_priority(TimePoint now) const;

  std::size_t max_items() const { return max_items_; }

 private:
  // The requests of one priority.
  struct Lane {
    QueueList queued;
    QueueList waiting;
    std::size_t items = 0;  // of `queued`
    TimePoint last_arrival;

    bool empty() const { return queued.empty() && waiting.empty(); }
  };
  using Lanes = std::map<int, Lane, std::greater<>>;  // the highest priority first

  bool fits(const Request& request) const;
  Lanes::const_iterator top_lane() const;
  Lanes::const_iterator next_lane() const;
  void add(Lane& lane, Request& request, Request* before);
  void drop_empty(Lanes::iterator lane);
  void unlink(Request& request);

  const std::size_t max_items_;
  const Duration ageing_;
  Lanes lanes_;  // a lane may be empty
  QueueList alone_;
  std::size_t items_ = 0;
  std::size_t alone_items_ = 0;
  int alone_count_ = 0;
  int requests_ = 0;
  int waiting_count_ = 0;
};

}  // namespace service_streamer
