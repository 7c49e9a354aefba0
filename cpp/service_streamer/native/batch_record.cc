#include "service_streamer/native/batch_record.h"

#include <utility>

namespace service_streamer::native {

BatchRecord::BatchRecord(const Batch& batch, const std::string& why)
    : items(batch.items),
      requests(batch.ranges.size()),
      reason(batch.reason),
      age(batch.age),
      begin(batch.dispatched),
      end(Clock::now()),
      error(why) {
  std::size_t next = 0;
  for (const RequestRange& range : batch.ranges) {
    const Request& request = *range.request;
    const std::size_t first = std::exchange(next, next + range.count);
    if (request.context == nullptr) continue;
    traced.push_back({.context = request.context,
                      .first = first,
                      .items = range.count,
                      .queue_time = request.taken - request.arrived});
  }
}

}  // namespace service_streamer::native
