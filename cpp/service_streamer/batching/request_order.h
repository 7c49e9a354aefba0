#pragma once

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/batching/tenants.h"

namespace service_streamer {

// Which of two queued or waiting requests goes first. A higher priority goes first, and within a priority
// goes_before() says which. With `ageing`, a request gains one priority for each such time that it has waited: of two
// priorities, the one with the least `arrived - priority * ageing` goes first.
class RequestOrder {
 public:
  // Duration::max(): no ageing.
  explicit RequestOrder(Duration ageing) : ageing_(ageing) {}

  bool before(const Request& a, const Request& b) const {
    if (a.priority == b.priority) return goes_before(a, b);
    if (ageing_ == Duration::max()) return a.priority > b.priority;
    const __int128 turn_a = virtual_arrival(a), turn_b = virtual_arrival(b);
    return turn_a != turn_b ? turn_a < turn_b : a.priority > b.priority;
  }

  // The request that goes first of those in `lanes`, which begin with the highest priority. `first_in(lane)` returns
  // that of a lane. nullptr if there is none.
  template <typename Lanes, typename FirstIn>
  Request* first_of(const Lanes& lanes, const FirstIn& first_in) const {
    Request* best = nullptr;
    for (const auto& [priority, lane] : lanes) {
      Request* first = first_in(lane);
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
