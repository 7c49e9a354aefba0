#pragma once

// A client process as a connection that the test drives.

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "service_streamer/wire/query.h"
#include "support/ipc.h"
#include "support/server.h"

namespace service_streamer::support {

using ipc::MessageType;
using ipc::Received;

class RawClient {
 public:
  explicit RawClient(const Server& server, bool sends_hello = true)
      : connection(ipc::Connection::make(ipc::connect_to(server.address()))) {
    if (sends_hello) connection->send_all(ipc::make_hello(ipc::Role::kClient));
  }

  void submit(std::uint64_t id, const std::vector<int>& items, const ipc::SubmitHead& terms = {}) const {
    ipc::SubmitHead head = terms;
    head.id = id;
    const ipc::Payload payload = payload_of(items);
    const ipc::Payload* const one = &payload;
    connection->send_all(ipc::make_submit({&head, 1}, {&one, 1}));
  }
  void query(std::uint64_t id, const ipc::Query& query) const { connection->send_all(ipc::make_query(id, query)); }
  void cancel(std::uint64_t id) const { connection->send_all(ipc::make_ids(MessageType::kCancel, {&id, 1})); }

  // Waits for the next message other than hello. False: disconnected.
  bool receive(ipc::InMessage& message) const {
    do {
      if (ipc::support::receive(*connection, message) != Received::kMessage) return false;
    } while (message.type == MessageType::kHello);
    return true;
  }
  std::vector<ipc::EndedCall> results() const {
    ipc::InMessage message;
    std::vector<ipc::EndedCall> ended;
    EXPECT_TRUE(receive(message) && message.type == MessageType::kResults && ipc::parse(message, ended));
    return ended;
  }
  // Returns the end of the next request.
  ipc::EndedCall result() const {
    std::vector<ipc::EndedCall> ended = results();
    EXPECT_EQ(ended.size(), 1U);
    return ended.empty() ? ipc::EndedCall{} : std::move(ended.front());
  }
  // Waits until `count` requests have ended, in any number of messages.
  bool have_ended(std::size_t count) const {
    for (std::size_t ended = 0; ended < count;) {
      const std::size_t more = results().size();
      if (more == 0) return false;
      ended += more;
    }
    return true;
  }
  ipc::QueryReply reply(std::uint64_t id) const {
    ipc::InMessage message;
    ipc::QueryReply answer;
    EXPECT_TRUE(receive(message) && message.id == id && ipc::parse(message, answer));
    return answer;
  }
  bool is_cut_off() const {
    ipc::InMessage message;
    while (receive(message)) {
    }
    return ipc::support::receive(*connection, message) == Received::kClosed;
  }
  void die() { connection.reset(); }

  std::shared_ptr<ipc::Connection> connection;
};

}  // namespace service_streamer::support
