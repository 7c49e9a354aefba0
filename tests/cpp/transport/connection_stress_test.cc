#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "service_streamer/transport/connection.h"
#include "support/ipc.h"

namespace service_streamer::ipc::support {
namespace {

constexpr int kBatches = 3000 / kStressShare;
constexpr std::size_t kInFlight = 12;

// Received blocks, for several threads to take.
class Shelf {
 public:
  void put(BlockRef block) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(std::move(block));
  }

  BlockRef take() {
    const std::lock_guard lock(mutex_);
    if (blocks_.empty()) return nullptr;
    BlockRef block = std::move(blocks_.back());
    blocks_.pop_back();
    return block;
  }

 private:
  std::mutex mutex_;
  std::vector<BlockRef> blocks_;
};

// Each block is full of one letter. The letter must not change while a thread holds the block.
bool intact(const PrivateMapping& mapping) {
  const auto* data = static_cast<const char*>(mapping.data());
  return std::memcmp(data, data + 1, mapping.size() - 1) == 0;
}

TEST(ConnectionStress, ManyThreadsReadAndReleaseBlocksWhileTheyAreReused) {
  const Pair pair;
  const auto pool = SharedPool::make(std::size_t{8} << 20, 16);
  Shelf shelf;
  std::atomic<int> dropped{0};
  std::atomic<int> spoilt{0};
  std::atomic<bool> over{false};
  std::vector<std::unique_ptr<Thread>> threads;
  threads.push_back(std::make_unique<Thread>([&] {
    InMessage message;
    for (int i = 0; i < kBatches; ++i) {
      BatchMessage batch;
      if (pair.there->wait_and_receive(message) != Received::kMessage || !parse(message, batch)) return;
      shelf.put(std::move(batch.payload.blocks.at(0).block));
    }
    pair.there->wait_and_receive(message);  // handles releases until the end of file
  }));
  for (int k = 0; k < 2; ++k) {
    threads.push_back(std::make_unique<Thread>([&] {
      while (!over) {
        BlockRef block = shelf.take();
        if (block == nullptr) {
          std::this_thread::yield();
          continue;
        }
        PrivateMapping mapping(std::move(block));
        if (!intact(mapping)) ++spoilt;
        if (dropped % 3 == 0) std::memset(mapping.data(), '!', 5000);
        ++dropped;
      }
    }));
  }

  // Also after a failure.
  const std::shared_ptr<void> end(nullptr, [&](void*) {
    over = true;
    pair.here->shut_down();
  });
  for (int i = 0; i < kBatches; ++i) {
    const std::size_t size = i % 5 == 0 ? 40'000 : 300'000 + static_cast<std::size_t>(i) * 7;
    Payload payload = payload_of({"item"});
    payload.blocks.push_back({.item = 0, .block = block_of(*pool, std::string(size, static_cast<char>(i)))});
    ASSERT_TRUE(pair.here->send(batch_of(static_cast<std::uint64_t>(i), payload)));
    payload = {};
    settle(*pair.here);
    while (pool->blocks_in_use() > kInFlight) {
      ASSERT_TRUE(readable(pair.here->fd()));
      settle(*pair.here);
    }
  }
  while (pool->blocks_in_use() > 0) {
    ASSERT_TRUE(readable(pair.here->fd()));
    settle(*pair.here);
  }
  EXPECT_EQ(spoilt, 0);
  EXPECT_TRUE(eventually([&] { return dropped == kBatches; }));
}

}  // namespace
}  // namespace service_streamer::ipc::support
