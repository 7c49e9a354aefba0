#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch.h"

namespace service_streamer::native {

// What the span of a finished batch tells. All of its requests with a trace context have the same record.
struct BatchRecord {
  // A request with a trace context.
  struct Traced {
    TraceContext context;
    std::size_t first = 0;    // the index of its first item in this batch
    std::uint32_t items = 0;  // in this batch
    Duration queue_time{0};
  };

  BatchRecord(const Batch& batch, const std::string& error);

  // True for the first call, which may come from any thread: that caller makes the span.
  bool claim() { return !claimed_.exchange(true, std::memory_order_relaxed); }

  std::vector<Traced> traced;  // in the order of their items
  const std::size_t items;
  const std::size_t requests;
  const CloseReason reason;
  const Duration age;
  const TimePoint begin;
  const TimePoint end;
  const std::string error;  // why all requests failed; empty if they did not

 private:
  std::atomic<bool> claimed_{false};
};

}  // namespace service_streamer::native
