#pragma once

#include <cstdint>
#include <string>

#include "service_streamer/batching/options.h"

namespace service_streamer::ipc {

// The queries that a client sends to its Server (kQuery), and their replies (kQueryReply).

enum class QueryKind : std::uint8_t {
  kCancel,           // cancels the request unless workers have all of it; yes: it was cancelled
  kRunning,          // yes: a worker has a part of the request
  kStats,            // the text of the reply is Server::stats()
  kConfigure,        // no: the settings were rejected, and the text says why
  kWaitReady,        // replied to when a worker is ready; no: no worker will come, and the text says why
  kStartRecording,   // no: the engine has a recording already
  kFinishRecording,  // the text of the reply is EventLog::finish(); no: this client has no recording
};

struct Query {
  QueryKind kind = QueryKind::kStats;
  std::uint64_t request = 0;     // for kCancel and kRunning
  EngineChange change;           // for kConfigure
  Duration limit{0};             // for kStartRecording
  std::uint64_t max_events = 0;  // for kStartRecording
};

struct QueryReply {
  bool yes = false;
  std::string text;
};

}  // namespace service_streamer::ipc
