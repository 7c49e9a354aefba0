#include "service_streamer/batching/event_log.h"

#include <unistd.h>

#include <algorithm>

#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/request.h"

namespace service_streamer {
namespace {

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

void append(std::string& out, const LoggedEvent* events, std::size_t count) {
  out.append(reinterpret_cast<const char*>(events), count * sizeof(LoggedEvent));
}

}  // namespace

EventLog::EventLog(TimePoint start, Duration limit, std::size_t max_events)
    : start_(nanoseconds(start)),
      until_(nanoseconds(start + std::clamp(limit, Duration::zero(), kLongest))),
      unix_start_(microseconds_since_1970()),
      capacity_(std::clamp<std::size_t>(max_events, 1, kMostEvents)) {
  events_.reserve(capacity_);
}

std::string EventLog::bytes(TimePoint end) const {
  std::string out = "{\"pid\":" + std::to_string(getpid()) + ",\"start\":" + std::to_string(start_) +
                    ",\"end\":" + std::to_string(std::min(nanoseconds(end), until_)) +
                    ",\"unix_start\":" + std::to_string(unix_start_) + "e-6,\"lost\":" + std::to_string(lost_) +
                    ",\"close_reasons\":" + close_reasons() + ",\"outcomes\":" + kOutcomes + "}\n";
  out.reserve(out.size() + events_.size() * sizeof(LoggedEvent));
  append(out, events_.data() + oldest_, events_.size() - oldest_);
  append(out, events_.data(), oldest_);
  return out;
}

}  // namespace service_streamer
