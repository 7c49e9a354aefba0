#pragma once

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/request.h"

namespace service_streamer {

// Which of two requests goes first. A higher priority goes first, and within a priority the earlier arrival. With
// `ageing`, a request gains one priority for each such time that it has waited: the one with the least
// `arrived - priority * ageing` goes first. This order never changes while the requests wait.
class RequestOrder {
 public:
  // Duration::max(): no ageing.
  explicit RequestOrder(Duration ageing) : ageing_(ageing) {}

  bool before(const Request& a, const Request& b) const {
    if (a.priority == b.priority) return a.arrived < b.arrived;
    if (ageing_ == Duration::max()) return a.priority > b.priority;
    const __int128 turn_a = virtual_arrival(a), turn_b = virtual_arrival(b);
    return turn_a != turn_b ? turn_a < turn_b : a.priority > b.priority;
  }

  // The request that goes first of those in `lanes`, which begin with the highest priority. `list` is the member of a
  // lane that has its requests. nullptr if there is none.
  template <typename Lanes, typename Lane, typename List>
  Request* first_of(const Lanes& lanes, List Lane::* list) const {
    Request* best = nullptr;
    for (const auto& [priority, lane] : lanes) {
      Request* first = (lane.*list).first();
      if (first == nullptr) continue;
      if (best == nullptr || before(*first, *best)) best = first;
      if (ageing_ == Duration::max()) break;
    }
    return best;
  }

 private:
  // When the request would have arrived to have its turn in the order of arrival. Both factors may be large.
  __int128 virtual_arrival(const Request& request) const {
    return __int128{request.arrived.time_since_epoch().count()} - __int128{request.priority} * ageing_.count();
  }

  Duration ageing_;
};

}  // namespace service_streamer
