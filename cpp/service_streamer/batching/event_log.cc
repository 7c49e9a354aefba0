#include "service_streamer/batching/event_log.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/request.h"

namespace service_streamer {
namespace {

constexpr std::size_t kRoomForJson = 1024;

constexpr const char* kOutcomes = R"(["none","answered","failed","expired","cancelled","closed","lost"])";

std::int64_t nanoseconds(TimePoint time) {
  return time.time_since_epoch().count();
}

std::int64_t microseconds_since_1970() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::microseconds(1);
}

std::string close_reasons() {
  std::string names;
  for (int reason = 0; reason <= static_cast<int>(CloseReason::kDrain); ++reason) {
    names += names.empty() ? "[\"" : ",\"";
    names += to_string(static_cast<CloseReason>(reason));
    names += '"';
  }
  return names + ']';
}

}  // namespace

EventLog::EventLog(TimePoint start, Duration limit, std::size_t max_events)
    : start_(nanoseconds(start)),
      until_(nanoseconds(start + std::clamp(limit, Duration::zero(), kLongest))),
      unix_start_(microseconds_since_1970()),
      capacity_(std::clamp<std::size_t>(max_events, 1, kMostEvents)) {
  bytes_.reserve(capacity_ * sizeof(LoggedEvent) + kRoomForJson);
}

std::string EventLog::finish(TimePoint end) {
  bytes_ += "\n{\"pid\":" + std::to_string(getpid()) + ",\"start\":" + std::to_string(start_) +
            ",\"end\":" + std::to_string(std::min(nanoseconds(end), until_)) +
            ",\"unix_start\":" + std::to_string(unix_start_) + "e-6,\"lost\":" + std::to_string(lost_) +
            ",\"oldest\":" + std::to_string(oldest_) + ",\"close_reasons\":" + close_reasons() +
            ",\"outcomes\":" + kOutcomes + "}";
  return std::move(bytes_);
}

}  // namespace service_streamer
