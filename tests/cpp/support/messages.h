#pragma once

// Messages as the other end receives them, valid or damaged.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "service_streamer/wire/message.h"
#include "service_streamer/wire/wire.h"
#include "support/ipc.h"

namespace service_streamer::ipc::support {

// The message as the other end receives it, with handles from 100.
inline InMessage deliver(const OutMessage& message) {
  std::string body = message.head;
  InMessage received;
  received.type = message.type;
  received.id = message.id;
  for (std::size_t i = 0; i < message.blocks.size(); ++i) {
    const std::uint64_t handle = 100 + i;
    std::memcpy(body.data() + sizeof(wire::Start) + i * sizeof(wire::Block) + offsetof(wire::Block, handle), &handle,
                sizeof handle);
    received.descriptors.emplace_back(fcntl(message.blocks[i]->fd(), F_DUPFD_CLOEXEC, 0));
  }
  for (const Bytes& bytes : message.tail) body += bytes.text();
  received.body = Bytes::copy_of(body);
  return received;
}

template <typename T>
bool accepted(InMessage message) {
  T parsed;
  return parse(message, parsed);
}

// The message with `value` written over its body at `offset`.
template <typename T>
InMessage with(const OutMessage& message, std::size_t offset, T value) {
  InMessage received = deliver(message);
  std::string body(received.body.text());
  std::memcpy(body.data() + offset, &value, sizeof value);
  received.body = Bytes::copy_of(body);
  return received;
}

// Expects the message to be rejected if it is truncated anywhere.
template <typename T>
void expect_only_whole(const OutMessage& message) {
  const std::size_t size = deliver(message).body.size();
  for (std::size_t cut = 0; cut < size; ++cut) {
    InMessage received = deliver(message);
    received.body = received.body.slice(0, cut);
    EXPECT_FALSE(accepted<T>(std::move(received))) << cut << " bytes of " << size;
  }
  InMessage longer = deliver(message);
  longer.body = Bytes::copy_of(std::string(longer.body.text()) + "x");
  EXPECT_FALSE(accepted<T>(std::move(longer)));
  EXPECT_TRUE(accepted<T>(deliver(message)));
}

class MessageTest : public testing::Test {
 protected:
  // Three items, with two blocks at the first and one at the last.
  Payload payload_with_blocks() {
    Payload payload = payload_of({"one", "", "three"});
    payload.blocks = {{.item = 0, .block = block_of(*pool_, "a")},
                      {.item = 0, .block = block_of(*pool_, "bb")},
                      {.item = 2, .block = block_of(*pool_, "ccc")}};
    return payload;
  }

  Result result_of(const std::string& text, std::vector<std::string> blocks, ResultKind kind = ResultKind::kOutputs) {
    Result result{.kind = kind, .bytes = Bytes::copy_of(text), .blocks = {}};
    for (const std::string& block : blocks) result.blocks.push_back(block_of(*pool_, block));
    return result;
  }

  const std::shared_ptr<SharedPool> pool_ = SharedPool::make();
};

}  // namespace service_streamer::ipc::support
