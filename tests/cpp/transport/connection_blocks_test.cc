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

}  // namespace
}  // namespace service_streamer::ipc::support
