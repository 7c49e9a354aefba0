#pragma once

#include <cstdint>
#include <string>

#include "service_streamer/base/bytes.h"
#include "service_streamer/batching/options.h"

namespace service_streamer::ipc {

// What a client asks its Server (kAsk), and what it is told (kTold).

enum class Question : std::uint32_t {
  kCancel = 1,  // end the request as cancelled if no worker has all of it; yes: done
  kRunning,     // yes: a worker has some of the request
  kStats,       // the text is Server::stats()
  kConfigure,   // no: the text says why not
  kWaitReady,   // told when a worker is ready; no: there will be none, and the text says why
};

struct Ask {
  Question question = Question::kStats;
  std::uint64_t request = 0;  // kCancel, kRunning
  EngineChange change;        // kConfigure
};

struct Told {
  bool yes = false;
  std::string text;
};

Bytes to_bytes(const Ask& ask);
Bytes to_bytes(const Told& told);

// False: what no honest peer sends.
bool from_bytes(const Bytes& bytes, Ask& ask);
bool from_bytes(const Bytes& bytes, Told& told);

}  // namespace service_streamer::ipc
