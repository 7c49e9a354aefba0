#pragma once

// Helpers for tests of the transport: payloads, blocks, and limits on descriptors.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "service_streamer/shared_memory/shared_memory.h"
#include "service_streamer/transport/connection.h"
#include "service_streamer/wire/message.h"
#include "support/sockets.h"
#include "support/threads.h"

namespace service_streamer::ipc::support {

using service_streamer::support::context_of;
using service_streamer::support::eventually;
using service_streamer::support::kPatience;
using service_streamer::support::kSanitized;
using service_streamer::support::kStressShare;
using service_streamer::support::Thread;

inline std::size_t open_descriptors() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(folder), end(folder))) - 1;  // the folder itself
}

// While it exists, this process can open only `count` more descriptors.
class DescriptorsLeft {
 public:
  explicit DescriptorsLeft(std::size_t count) {
    getrlimit(RLIMIT_NOFILE, &limit_);
    const rlimit low{.rlim_cur = std::min<rlim_t>(limit_.rlim_cur, 400), .rlim_max = limit_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    for (int fd = dup(0); fd >= 0; fd = dup(0)) taken_.push_back(fd);
    EXPECT_GE(taken_.size(), count);
    for (; count > 0; --count) {
      close(taken_.back());
      taken_.pop_back();
    }
  }

  ~DescriptorsLeft() {
    for (const int fd : taken_) close(fd);
    setrlimit(RLIMIT_NOFILE, &limit_);
  }

  DescriptorsLeft(const DescriptorsLeft&) = delete;
  DescriptorsLeft& operator=(const DescriptorsLeft&) = delete;

 private:
  rlimit limit_{};
  std::vector<int> taken_;
};

inline BlockRef block_of(SharedPool& pool, std::string_view text) {
  void* data = nullptr;
  BlockRef block = pool.allocate(text.size(), data);
  std::memcpy(data, text.data(), text.size());
  return block;
}

inline std::string text_of(const BlockRef& block) {
  const PrivateMapping mapping(block);
  return {static_cast<const char*>(mapping.data()), mapping.size()};
}

inline std::string_view item_of(const Payload& payload, std::size_t item) {
  return payload.bytes.text().substr(payload.begin_of(item), payload.ends[item] - payload.begin_of(item));
}

inline Payload payload_of(const std::vector<std::string>& items) {
  Payload payload;
  std::string all;
  for (const std::string& item : items) {
    all += item;
    payload.ends.push_back(all.size());
  }
  payload.bytes = Bytes::copy_of(all);
  return payload;
}

inline PayloadRange all_of(const Payload& payload) {
  return {.payload = &payload, .begin = 0, .count = static_cast<std::uint32_t>(payload.items())};
}

inline OutMessage batch_of(std::uint64_t id, const Payload& payload) {
  const RangeHead head{.items = static_cast<std::uint32_t>(payload.items())};
  const PayloadRange range = all_of(payload);
  return make_batch(id, {}, {&head, 1}, {&range, 1});
}

inline bool readable(int fd, Duration patience = kPatience) {
  pollfd watched{.fd = fd, .events = POLLIN, .revents = 0};
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  return poll(&watched, 1, static_cast<int>(milliseconds)) == 1;
}

inline Payload payload_with(const BlockRef& block, std::size_t times = 1) {
  Payload payload = payload_of({"item"});
  for (std::size_t i = 0; i < times; ++i) payload.blocks.push_back({.item = 0, .block = block});
  return payload;
}

// Two connected connections.
struct Pair {
  Pair() {
    auto [a, b] = socket_pair();
    here = Connection::make(std::move(a));
    there = Connection::make(std::move(b));
  }

  std::shared_ptr<Connection> here;
  std::shared_ptr<Connection> there;
};

// Waits for the next message.
inline Received receive(Connection& connection, InMessage& message) {
  for (;;) {
    const Received received = connection.receive(message);
    if (received != Received::kNothing) return received;
    if (!readable(connection.fd())) return Received::kNothing;
  }
}

// Handles the releases that have arrived.
inline void settle(Connection& connection) {
  InMessage message;
  EXPECT_EQ(connection.receive(message), Received::kNothing);
}

}  // namespace service_streamer::ipc::support
