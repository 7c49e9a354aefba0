// How a Connection sends blocks when descriptors run out.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "service_streamer/transport/connection.h"
#include "support/ipc.h"

namespace service_streamer::ipc::support {
namespace {

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
