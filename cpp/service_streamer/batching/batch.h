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
  bool failed = false;     // set by the worker: the model returned an exception as an output of this range
  bool postponed = false;  // set by the worker for a whole request: queue it again, to run alone later

  bool whole() const { return begin == 0 && count == request->size; }
};

// True if `second` begins where `first` ends, in the same request.
inline bool follows(const RequestRange& first, const RequestRange& second) {
  return first.request == second.request && first.begin + first.count == second.begin;
}

// What a batch was when it was cut. It stays the same if the batch is split.
struct BatchSize {
  std::uint32_t place = 0;  // of its worker
  std::size_t items = 0;
  double load = 0;  // its weight, if batches are weighed; else `items`
};

// What one call of the model works on: ranges of requests, in the order of the items. Engine::cut fills it, and
// Engine::complete takes it back. In between only its worker uses it, and all requests in it stay valid.
struct Batch {
  std::vector<RequestRange> ranges;
  std::size_t items = 0;
  std::uint32_t id = 0;  // of all batches of the engine; wraps
  int finishing = 0;     // requests whose last item is in this batch
  CloseReason reason = CloseReason::kIdle;
  TimePoint dispatched;   // when it was cut; the service time counts from here
  BatchSize whole;        // before it was split
  double padded = 0;      // its items times the weight of the heaviest; 0 if weights do not count
  Duration age{0};        // of its oldest request, when the batch was cut
  bool rerun = false;     // part of a failed batch, run again to find the guilty requests
  bool isolated = false;  // the worker has run it again in parts by itself
};

}  // namespace service_streamer
