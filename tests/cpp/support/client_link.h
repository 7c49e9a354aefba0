#pragma once

// A client process: an engine and a ClientLink.

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "service_streamer/client/client_link.h"
#include "support/ipc.h"
#include "support/server.h"

namespace service_streamer::support {

using ipc::ClientLink;

inline constexpr EngineOptions kWaitingRoom{.batch_size = 1, .policy = PolicyKind::kGreedy, .max_queue = 100};

class Client {
 public:
  explicit Client(std::string address, const EngineOptions& options = kWaitingRoom,
                  const ipc::ClientLinkOptions& link_options = {})
      : engine(options), client_link(std::make_unique<ClientLink>(engine, std::move(address), link_options)) {
    client_link->start();
  }
  ~Client() {
    close_remote(engine, false);
    client_link.reset();
    abort_remote(engine);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Engine engine;
  std::unique_ptr<ClientLink> client_link;
  Sleeping sleeping;
};

// An address without a listener.
inline std::string unused_address() {
  static std::atomic<int> count{0};
  return "@client_link_test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

// Accepts the next connection, and waits for a request on it.
inline std::shared_ptr<ipc::Connection> connection_that_submits(const FileDescriptor& listener) {
  FileDescriptor socket;
  EXPECT_TRUE(eventually([&] { return static_cast<bool>(socket = ipc::accept_from(listener)); }));
  auto connection = ipc::Connection::make(std::move(socket));
  ipc::InMessage message;
  do {
    EXPECT_EQ(ipc::support::receive(*connection, message), ipc::Received::kMessage);
  } while (message.type != ipc::MessageType::kSubmit);
  return connection;
}

inline TimePoint soon() {
  return Clock::now() + kPatience;
}

}  // namespace service_streamer::support
