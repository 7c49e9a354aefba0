#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/request.h"

namespace service_streamer {

// A range of the items of one request.
struct RequestRange {
  Request* request = nullptr;
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
  bool failed = false;     // set by the worker: the model gave an error as an output of this part
  bool postponed = false;  // set by the worker, of a whole request: it is to run alone later

  bool whole() const { return begin == 0 && count == request->size; }
};

// Whether it goes on where the first one ends.
inline bool follows(const RequestRange& first, const RequestRange& second) {
  return first.request == second.request && first.begin + first.count == second.begin;
}

// What one call of the model works on: ranges of requests, in the order of its items. Filled by Engine::cut, given back by
// Engine::complete; in between its worker alone has it, and every request in it stays valid.
struct Batch {
  std::vector<RequestRange> parts;
  std::size_t items = 0;
  int finishing = 0;  // requests whose last item is in it
  CloseReason reason = CloseReason::kIdle;
  TimePoint dispatched;   // since when it has its worker: the service time counts from here
  Duration age{0};        // of its oldest request, when it was cut
  bool rerun = false;     // a piece of a batch that failed, run again to find the guilty request
  bool isolated = false;  // the worker itself ran it again in pieces
};

}  // namespace service_streamer
