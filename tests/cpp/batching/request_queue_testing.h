#pragma once

#include <cstdint>
#include <deque>

#include "service_streamer/batching/request.h"

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

 private:
  std::deque<Request> requests_;
};

}  // namespace service_streamer
