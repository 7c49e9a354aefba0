#pragma once

// A client process: an engine and a Relay of its own.

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "service_streamer/client/client_link.h"
#include "support/server.h"

namespace service_streamer::support {

using ipc::Relay;

inline constexpr EngineOptions kWaitingRoom{.batch_size = 1, .policy = PolicyKind::kGreedy, .max_queue = 100};

class Client {
 public:
  explicit Client(std::string address, const EngineOptions& options = kWaitingRoom, bool owner_returns = true)
      : engine(options), relay(std::make_unique<Relay>(engine, std::move(address), owner_returns)) {
    relay->start();
  }
  ~Client() {
    close_remote(engine, false);
    relay.reset();
    abort_remote(engine);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Engine engine;
  std::unique_ptr<Relay> relay;
  Sleeping sleeping;
};

// Where nobody listens.
inline std::string unused_address() {
  static std::atomic<int> count{0};
  return "@relay_test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

inline TimePoint soon() {
  return Clock::now() + kPatience;
}

}  // namespace service_streamer::support
