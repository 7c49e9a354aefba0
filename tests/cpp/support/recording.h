#pragma once

// The events in what Recorder::finish() returns.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "service_streamer/batching/event_log.h"

namespace service_streamer::support {

inline std::string json_in(const std::string& bytes) {
  return bytes.substr(bytes.rfind('\n') + 1);
}

// In their order.
inline std::vector<LoggedEvent> events_in(const std::string& bytes) {
  const std::string json = json_in(bytes);
  std::vector<LoggedEvent> events((bytes.size() - json.size()) / sizeof(LoggedEvent));
  if (!events.empty()) std::memcpy(events.data(), bytes.data(), events.size() * sizeof(LoggedEvent));
  const auto oldest = std::stol(json.substr(json.find("\"oldest\":") + 9));
  std::rotate(events.begin(), events.begin() + oldest, events.end());
  return events;
}

inline std::vector<LoggedEvent> events_in(const std::string& bytes, LoggedEvent::Kind kind) {
  std::vector<LoggedEvent> events = events_in(bytes);
  std::erase_if(events, [kind](const LoggedEvent& event) { return event.kind != kind; });
  return events;
}

}  // namespace service_streamer::support
