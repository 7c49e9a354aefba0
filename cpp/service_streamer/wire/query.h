#pragma once

#include <cstdint>
#include <string>

#include "service_streamer/batching/options.h"

namespace service_streamer::ipc {

// What a client asks its Server (kQuery), and what it is told (kQueryReply).

enum class QueryKind : std::uint8_t {
  kCancel,     // end the request as cancelled if no worker has all of it; yes: done
  kRunning,    // yes: a worker has some of the request
  kStats,      // the text is Server::stats()
  kConfigure,  // no: the text says why not
  kWaitReady,  // told when a worker is ready; no: there will be none, and the text says why
};

struct Query {
  QueryKind question = QueryKind::kStats;
  std::uint64_t request = 0;  // kCancel, kRunning
  EngineChange change;        // kConfigure
};

struct QueryReply {
  bool yes = false;
  std::string text;
};

}  // namespace service_streamer::ipc
