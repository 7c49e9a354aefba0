// How a Connection lends blocks, sends their descriptors, and releases them.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "service_streamer/transport/connection.h"
#include "support/ipc.h"

namespace service_streamer::ipc::support {
namespace {

Payload payload_with(const BlockRef& block, std::size_t times = 1) {
  Payload payload = payload_of({"item"});
  for (std::size_t i = 0; i < times; ++i) payload.blocks.push_back({.item = 0, .block = block});
  return payload;
}

TEST(Connection, LendsBlocksUntilThePeerHasReleasedThem) {
  const Pair pair;
  const auto pool = SharedPool::make();
  ASSERT_TRUE(pair.here->send(batch_of(1, payload_with(block_of(*pool, "lent")))));
  InMessage message;
  BatchMessage batch;
  ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
  ASSERT_TRUE(parse(message, batch));
  EXPECT_EQ(text_of(batch.payload.blocks.at(0).block), "lent");
  EXPECT_EQ(pool->blocks_in_use(), 1U);
  batch = {};
  ASSERT_TRUE(pair.there->flush());
  settle(*pair.here);
  EXPECT_EQ(pool->blocks_in_use(), 0U);
  EXPECT_GT(pool->bytes_kept(), 0U);
}

TEST(Connection, ReleasesABlockHopByHop) {
  const Pair first;
  const Pair second;
  const auto pool = SharedPool::make();
  const std::size_t before = open_descriptors();
  ASSERT_TRUE(first.here->send(batch_of(1, payload_with(block_of(*pool, "from hand to hand")))));
  InMessage message;
  BatchMessage batch;
  ASSERT_EQ(receive(*first.there, message), Received::kMessage);
  ASSERT_TRUE(parse(message, batch));
  ASSERT_TRUE(second.here->send(batch_of(2, batch.payload)));
  batch = {};
  ASSERT_EQ(receive(*second.there, message), Received::kMessage);
  ASSERT_TRUE(parse(message, batch));
  EXPECT_EQ(text_of(batch.payload.blocks.at(0).block), "from hand to hand");
  batch = {};
  EXPECT_TRUE(second.there->flush());
  settle(*second.here);
  EXPECT_TRUE(first.there->flush());
  settle(*first.here);
  EXPECT_EQ(pool->blocks_in_use(), 0U);
  EXPECT_EQ(open_descriptors(), before + 1) << "all but the pool's";
}

TEST(Connection, ABlockThatThePeerMayStillReadIsNotReused) {
  const Pair pair;
  const auto pool = SharedPool::make();
  ASSERT_TRUE(pair.here->send(batch_of(1, payload_with(block_of(*pool, "kept by a dead peer")))));
  InMessage message;
  BatchMessage batch;
  ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
  ASSERT_TRUE(parse(message, batch));
  const PrivateMapping kept(batch.payload.blocks.at(0).block);
  pair.here->shut_down();
  EXPECT_EQ(pool->blocks_in_use(), 0U);
  EXPECT_EQ(pool->bytes_kept(), 0U);
  block_of(*pool, "something else and longer");
  EXPECT_EQ(std::memcmp(kept.data(), "kept by a dead peer", 19), 0);
}

TEST(Connection, PassesOnThatABlockIsNotReusable) {
  const Pair pair;
  const auto pool = SharedPool::make();
  ASSERT_TRUE(pair.here->send(batch_of(1, payload_with(block_of(*pool, "lent on")))));
  InMessage message;
  BatchMessage batch;
  ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
  ASSERT_TRUE(parse(message, batch));
  {
    const Pair next;
    ASSERT_TRUE(next.here->send(batch_of(1, batch.payload)));
  }
  batch = {};
  ASSERT_TRUE(pair.there->flush());
  settle(*pair.here);
  EXPECT_EQ(pool->bytes_kept(), 0U);
}

TEST(Connection, SendsMoreDescriptorsThanOneSystemCallTakes) {
  const Pair pair;
  const auto pool = SharedPool::make();
  for (const std::size_t count : {252, 253, 254, 506, 600}) {
    const Payload payload = payload_with(block_of(*pool, std::to_string(count)), count);
    const std::size_t before = open_descriptors();
    ASSERT_TRUE(pair.here->send(batch_of(count, payload)));
    ASSERT_TRUE(pair.here->send(make_text(MessageType::kReady, "next")));
    EXPECT_EQ(pair.here->unsent(), 0U);
    InMessage message;
    BatchMessage batch;
    ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
    ASSERT_TRUE(parse(message, batch));
    ASSERT_EQ(batch.payload.blocks.size(), count);
    EXPECT_EQ(text_of(batch.payload.blocks[count - 1].block), std::to_string(count));
    ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
    EXPECT_EQ(message.body.text(), "next");
    batch = {};
    EXPECT_EQ(open_descriptors(), before);
  }
}

TEST(Connection, ManyReleasesWakeTheOwnerOnce) {
  auto [a, b] = socket_pair();
  std::atomic<int> wakes{0};
  const auto here = Connection::make(std::move(a));
  const auto there = Connection::make(std::move(b), [&] { ++wakes; });
  const auto pool = SharedPool::make();
  ASSERT_TRUE(here->send(batch_of(1, payload_with(block_of(*pool, "x"), 5))));
  InMessage message;
  BatchMessage batch;
  ASSERT_EQ(receive(*there, message), Received::kMessage);
  ASSERT_TRUE(parse(message, batch));
  for (int filling = 1; filling <= 2; ++filling) {
    batch.payload.blocks.pop_back();
    batch.payload.blocks.pop_back();
    EXPECT_EQ(wakes, filling);
    EXPECT_TRUE(there->flush());
  }
  there->shut_down();
  batch = {};
  EXPECT_EQ(wakes, 2) << "a closed connection wakes no thread";
}

TEST(Connection, AReleaseWakesAWaitingThread) {
  const Pair pair;
  const auto pool = SharedPool::make();
  ASSERT_TRUE(pair.here->send(batch_of(1, payload_with(block_of(*pool, "dropped by another thread")))));
  InMessage message;
  BatchMessage batch;
  ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
  ASSERT_TRUE(parse(message, batch));
  Received last = Received::kNothing;
  Thread waiting([&] {
    InMessage next;
    last = pair.there->wait_and_receive(next);
  });
  EXPECT_TRUE(eventually([&] { return waiting.asleep(); }));
  batch = {};
  EXPECT_TRUE(readable(pair.here->fd()));
  settle(*pair.here);
  EXPECT_EQ(pool->blocks_in_use(), 0U);
  EXPECT_FALSE(waiting.finished());
  ASSERT_TRUE(pair.here->send(make_text(MessageType::kReady, "")));
  EXPECT_TRUE(eventually([&] { return waiting.finished(); }));
  EXPECT_EQ(last, Received::kMessage);
}

TEST(Connection, AForkedChildDoesNotTouchIt) {
  Pair pair;
  const auto pool = SharedPool::make();
  ASSERT_TRUE(pair.here->send(batch_of(1, payload_with(block_of(*pool, "the parent's")))));
  InMessage message;
  BatchMessage batch;
  ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
  ASSERT_TRUE(parse(message, batch));
  const pid_t child = fork();
  if (child == 0) {
    batch = {};
    pair.there.reset();
    pair.here.reset();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  settle(*pair.here);
  EXPECT_EQ(pool->blocks_in_use(), 1U);
  ASSERT_TRUE(pair.there->send(make_text(MessageType::kReady, "still here")));
  EXPECT_EQ(receive(*pair.here, message), Received::kMessage);
}

// --- descriptor exhaustion ---

TEST(Connection, AMessageArrivesWithoutTheDescriptorsThatDoNotFitThisProcess) {
  const auto pool = SharedPool::make();
  const BlockRef block = block_of(*pool, "x");
  for (const std::size_t left : {0, 1, 2}) {
    const Pair pair;
    const std::size_t before = open_descriptors();
    ASSERT_TRUE(pair.here->send(batch_of(1, payload_with(block, 3))));
    ASSERT_TRUE(pair.here->send(batch_of(2, payload_with(block))));
    InMessage message;
    BatchMessage batch;
    {
      const DescriptorsLeft few(left);
      ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
    }
    ASSERT_TRUE(parse(message, batch));
    ASSERT_EQ(batch.payload.blocks.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(batch.payload.blocks[i].block->fd() >= 0, i < left);
    batch = {};
    ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
    ASSERT_TRUE(parse(message, batch));
    EXPECT_EQ(text_of(batch.payload.blocks.at(0).block), "x") << "the next one is whole";
    batch = {};
    EXPECT_TRUE(pair.there->flush());
    settle(*pair.here);
    EXPECT_EQ(block.use_count(), 1) << "also the lost ones were released";
    EXPECT_EQ(open_descriptors(), before);
  }
}

TEST(Connection, LosesOnlyTheDescriptorsOfOneOfManySystemCalls) {
  const Pair pair;
  const auto pool = SharedPool::make();
  const BlockRef block = block_of(*pool, "x");
  ASSERT_TRUE(pair.here->send(batch_of(1, payload_with(block, 600))));
  InMessage message;
  {
    const DescriptorsLeft few(100);
    ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
  }
  BatchMessage batch;
  ASSERT_TRUE(parse(message, batch));
  ASSERT_EQ(batch.payload.blocks.size(), 600U);
  EXPECT_GE(batch.payload.blocks[99].block->fd(), 0);
  EXPECT_EQ(batch.payload.blocks[100].block->fd(), -1);
}

TEST(Connection, PassesOnThatADescriptorWasLost) {
  const Pair pair;
  const auto pool = SharedPool::make();
  Payload payload = payload_with(block_of(*pool, "here"));
  payload.blocks.push_back(
      {.item = 0, .block = std::make_shared<const SharedBlock>(FileDescriptor(), 5, std::weak_ptr<BlockOwner>(), 0)});
  payload.blocks.push_back({.item = 0, .block = block_of(*pool, "here too")});
  ASSERT_TRUE(pair.here->send(batch_of(1, payload)));
  InMessage message;
  BatchMessage batch;
  ASSERT_EQ(receive(*pair.there, message), Received::kMessage);
  ASSERT_TRUE(parse(message, batch));
  ASSERT_EQ(batch.payload.blocks.size(), 3U);
  EXPECT_EQ(text_of(batch.payload.blocks[0].block), "here");
  EXPECT_EQ(batch.payload.blocks[1].block->fd(), -1);
  EXPECT_EQ(text_of(batch.payload.blocks[2].block), "here too");
}

TEST(Connection, AMessageWithTooManyBlocksArrivesWithoutDescriptors) {
  const Pair pair;
  const auto pool = SharedPool::make();
  const BlockRef block = block_of(*pool, "x");
  constexpr std::size_t kTooMany = std::size_t{kMaxDescriptors} + 1;
  ASSERT_TRUE(pair.here->send(batch_of(1, payload_with(block, kTooMany))));
  InMessage message;
  Received received = Received::kNothing;
  while (received == Received::kNothing) {
    ASSERT_TRUE(pair.here->flush());
    received = pair.there->receive(message);
  }
  ASSERT_EQ(received, Received::kMessage);
  BatchMessage batch;
  ASSERT_TRUE(parse(message, batch));
  ASSERT_EQ(batch.payload.blocks.size(), kTooMany);
  EXPECT_EQ(batch.payload.blocks.front().block->fd(), -1);
}

// Runs as a user without privileges, because the kernel does not limit root.
TEST(Connection, MessagesArriveWithoutDescriptorsWhileTooManyAreInFlight) {
  const pid_t child = fork();
  if (child == 0) {
    // The limit on descriptors in flight counts all processes of a user; root has none.
    const auto user = static_cast<uid_t>(20'000 + getpid() % 40'000);
    if (geteuid() == 0 && setresuid(user, user, user) != 0) _exit(2);
    const Pair pair;
    const auto pool = SharedPool::make();
    const BlockRef block = block_of(*pool, "x");
    constexpr int kMessages = 40;
    std::size_t whole = 0;
    std::size_t lost = 0;
    {
      const DescriptorsLeft few(200);
      for (int i = 0; i < kMessages; ++i) {
        if (!pair.here->send(batch_of(1, payload_with(block, 50)))) _exit(3);
      }
    }
    for (int i = 0; i < kMessages; ++i) {
      InMessage message;
      BatchMessage batch;
      if (receive(*pair.there, message) != Received::kMessage || !parse(message, batch)) _exit(4);
      for (const Payload::Block& of : batch.payload.blocks) ++(of.block->fd() >= 0 ? whole : lost);
    }
    _exit(whole > 0 && lost > 0 && whole + lost == kMessages * 50 ? 0 : 5);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace service_streamer::ipc::support
