#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "service_streamer/batching/request.h"
#include "service_streamer/batching/request_queue.h"

namespace service_streamer {

// Makes requests, which live as long as the test.
class Requests {
 public:
  Request& make(std::uint32_t size, int priority = 0, int arrived = 0) {
    Request& request = requests_.emplace_back();
    request.size = size;
    request.priority = priority;
    request.arrived = TimePoint(Duration(arrived));
    return request;
  }

  // A request of a tenant.
  Request& make_of(const std::string& tenant, std::uint32_t size, int priority = 0, int arrived = 0) {
    Request& request = make(size, priority, arrived);
    request.traits = std::make_shared<ItemTraits>(ItemTraits{.keys = {}, .weights = {}, .tenant = tenant});
    return request;
  }

 private:
  std::deque<Request> requests_;
};

// Cuts up to `limit` items off the front request.
inline RequestRange take(RequestQueue& queue, std::uint32_t limit) {
  Request& front = queue.front();
  return queue.take(front, std::min(limit, front.run_end - front.dispatched));
}

}  // namespace service_streamer
