#include "service_streamer/worker/worker_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/ipc.h"

namespace service_streamer::ipc::support {
namespace {

using ReceiveStatus = WorkerLink::ReceiveStatus;

// A WorkerLink, and the server's end of its socket.
class WorkerLinkTest : public testing::Test {
 protected:
  WorkerLinkTest() {
    auto [a, b] = socket_pair();
    engine_ = Connection::make(std::move(a));
    link_ = std::make_unique<WorkerLink>(std::move(b));
  }

  void set_up() {
    ASSERT_TRUE(engine_->send(make_hello(Role::kEngine)));
    ASSERT_TRUE(engine_->send(make_opaque(MessageType::kSetup, 0, Bytes::copy_of("model"))));
    Bytes setup;
    ASSERT_EQ(link_->receive_setup(setup), ReceiveStatus::kReceived);
    EXPECT_EQ(setup.text(), "model");
    ASSERT_TRUE(link_->send_ready("{}"));
    ASSERT_EQ(receive(*engine_, message_), Received::kMessage);
    Hello hello;
    EXPECT_TRUE(parse(message_, hello));
    EXPECT_EQ(hello.role, Role::kWorker);
    ASSERT_EQ(receive(*engine_, message_), Received::kMessage);
    EXPECT_EQ(message_.type, MessageType::kReady);
    EXPECT_EQ(message_.body.text(), "{}");
  }

  std::shared_ptr<Connection> engine_;
  std::unique_ptr<WorkerLink> link_;
  InMessage message_;
  std::uint64_t id_ = 0;
  BatchMessage batch_;
};

TEST_F(WorkerLinkTest, ReceivesABatchAndReplies) {
  set_up();
  const Payload payload = payload_of({"a", "b"});
  ASSERT_TRUE(engine_->send(batch_of(12, payload)));
  ASSERT_EQ(link_->next_batch(id_, batch_), ReceiveStatus::kReceived);
  EXPECT_EQ(id_, 12U);
  EXPECT_EQ(item_of(batch_.payload, 1), "b");
  ReplyMessage reply;
  reply.results.push_back({.kind = ResultKind::kOutputs, .bytes = Bytes::copy_of("AB"), .blocks = {}});
  ASSERT_TRUE(link_->reply(id_, reply));
  ASSERT_EQ(receive(*engine_, message_), Received::kMessage);
  EXPECT_EQ(message_.id, 12U);
  ReplyMessage received;
  ASSERT_TRUE(parse(message_, received));
  EXPECT_EQ(received.results.at(0).bytes.text(), "AB");
}

TEST_F(WorkerLinkTest, ReportsReleasedBlocksWithTheReply) {
  set_up();
  const auto pool = SharedPool::make();
  Payload payload = payload_of({"a"});
  payload.blocks.push_back({.item = 0, .block = block_of(*pool, "large")});
  ASSERT_TRUE(engine_->send(batch_of(1, payload)));
  payload = {};
  ASSERT_EQ(link_->next_batch(id_, batch_), ReceiveStatus::kReceived);
  EXPECT_EQ(text_of(batch_.payload.blocks.at(0).block), "large");
  batch_ = {};
  ASSERT_TRUE(link_->reply(id_, {}));
  ASSERT_EQ(receive(*engine_, message_), Received::kMessage);
  settle(*engine_);
  EXPECT_EQ(pool->blocks_in_use(), 0U);
}

TEST_F(WorkerLinkTest, GetsItsOwnBlocksBackBeforeTheNextBatch) {
  set_up();
  ReplyMessage reply;
  reply.results.push_back(
      {.kind = ResultKind::kRows, .bytes = Bytes::copy_of("r"), .blocks = {block_of(*link_->pool(), "rows")}});
  ASSERT_TRUE(link_->reply(1, reply));
  reply = {};
  EXPECT_EQ(link_->pool()->blocks_in_use(), 1U);
  ASSERT_EQ(receive(*engine_, message_), Received::kMessage);
  {
    ReplyMessage received;
    ASSERT_TRUE(parse(message_, received));
    EXPECT_EQ(text_of(received.results.at(0).blocks.at(0)), "rows");
  }
  ASSERT_TRUE(engine_->flush());
  ASSERT_TRUE(engine_->send(batch_of(2, payload_of({"a"}))));
  ASSERT_EQ(link_->next_batch(id_, batch_), ReceiveStatus::kReceived);
  EXPECT_EQ(link_->pool()->blocks_in_use(), 0U);
}

TEST_F(WorkerLinkTest, ReportsTheEndOfTheServer) {
  set_up();
  engine_->shut_down();
  EXPECT_EQ(link_->next_batch(id_, batch_), ReceiveStatus::kClosed);
  EXPECT_FALSE(link_->reply(1, {}));
  EXPECT_EQ(link_->next_batch(id_, batch_), ReceiveStatus::kClosed);
}

TEST_F(WorkerLinkTest, ReportsTheEndOfTheServerBeforeTheSetup) {
  engine_->shut_down();
  Bytes setup;
  EXPECT_EQ(link_->receive_setup(setup), ReceiveStatus::kClosed);
}

TEST_F(WorkerLinkTest, ASignalInterruptsTheSetupWhichCanBeContinued) {
  Bytes setup;
  std::atomic<int> interrupted{0};
  Thread worker([&] {
    for (ReceiveStatus got = ReceiveStatus::kInterrupted; got == ReceiveStatus::kInterrupted;) {
      got = link_->receive_setup(setup);
      if (got == ReceiveStatus::kInterrupted) ++interrupted;
    }
  });
  EXPECT_TRUE(worker.interrupt_until([&] { return interrupted > 0; }));
  ASSERT_TRUE(engine_->send(make_hello(Role::kEngine)));
  const int before = interrupted;
  EXPECT_TRUE(worker.interrupt_until([&] { return interrupted > before; }));
  ASSERT_TRUE(engine_->send(make_opaque(MessageType::kSetup, 0, Bytes::copy_of("model"))));
  EXPECT_TRUE(eventually([&] { return worker.finished(); }));
  EXPECT_EQ(setup.text(), "model");
}

TEST_F(WorkerLinkTest, ASignalInterruptsTheWaitForABatch) {
  set_up();
  ReceiveStatus got = ReceiveStatus::kReceived;
  Thread worker([&] { got = link_->next_batch(id_, batch_); });
  EXPECT_TRUE(worker.interrupt_until([&] { return worker.finished(); }));
  EXPECT_EQ(got, ReceiveStatus::kInterrupted);
}

TEST_F(WorkerLinkTest, KnowsWhichBatchesAreNotWanted) {
  set_up();
  ASSERT_TRUE(engine_->send(batch_of(1, payload_of({"a"}))));
  ASSERT_TRUE(engine_->send(batch_of(2, payload_of({"b"}))));
  ASSERT_EQ(link_->next_batch(id_, batch_), ReceiveStatus::kReceived);
  ASSERT_EQ(link_->next_batch(id_, batch_), ReceiveStatus::kReceived);
  ASSERT_TRUE(engine_->send(make_ids(MessageType::kCancel, std::vector<std::uint64_t>{2, 7})));
  EXPECT_FALSE(link_->cancelled(2)) << "not received yet";
  EXPECT_TRUE(eventually([&] {
    link_->next_batch(id_, batch_, Clock::now());
    return link_->cancelled(2);
  }));
  EXPECT_FALSE(link_->cancelled(1));
  EXPECT_FALSE(link_->cancelled(7)) << "it has no such batch";
  ASSERT_TRUE(link_->reply(2, {}));
  EXPECT_FALSE(link_->cancelled(2));
}

TEST_F(WorkerLinkTest, ARingEndsTheWaitForABatch) {
  set_up();
  ReceiveStatus got = ReceiveStatus::kReceived;
  Thread worker([&] { got = link_->next_batch(id_, batch_); });
  EXPECT_TRUE(eventually([&] { return worker.asleep(); }));
  link_->ring();
  EXPECT_TRUE(eventually([&] { return worker.finished(); }));
  EXPECT_EQ(got, ReceiveStatus::kInterrupted);
}

TEST_F(WorkerLinkTest, TellsHowManyBatchesArePausedAndLearnsItsPlaces) {
  set_up();
  ASSERT_TRUE(engine_->send(make_text(MessageType::kPlaces, {}, 5)));
  EXPECT_EQ(link_->places(), 0U) << "not received yet";
  EXPECT_TRUE(eventually([&] {
    link_->next_batch(id_, batch_, Clock::now());
    return link_->places() == 5;
  }));
  ASSERT_TRUE(link_->send_paused(3));
  ASSERT_EQ(receive(*engine_, message_), Received::kMessage);
  EXPECT_EQ(message_.type, MessageType::kPaused);
  EXPECT_EQ(message_.id, 3U);
}

TEST_F(WorkerLinkTest, HangsUpOnAServerOfAnotherVersion) {
  OutMessage hello = make_hello(Role::kEngine);
  ++hello.head[0];
  ASSERT_TRUE(engine_->send(std::move(hello)));
  ASSERT_TRUE(engine_->send(make_opaque(MessageType::kSetup, 0, Bytes::copy_of("model"))));
  Bytes setup;
  EXPECT_EQ(link_->receive_setup(setup), ReceiveStatus::kClosed);
}

TEST_F(WorkerLinkTest, HangsUpOnAPeerThatIsNoServer) {
  ASSERT_TRUE(engine_->send(make_hello(Role::kClient)));
  Bytes setup;
  EXPECT_EQ(link_->receive_setup(setup), ReceiveStatus::kClosed);
  ASSERT_EQ(receive(*engine_, message_), Received::kMessage);
  EXPECT_EQ(receive(*engine_, message_), Received::kClosed);
}

TEST_F(WorkerLinkTest, HangsUpOnMessagesThatAreNotForAWorker) {
  set_up();
  ASSERT_TRUE(engine_->send(make_text(MessageType::kReady, "me too")));
  EXPECT_EQ(link_->next_batch(id_, batch_), ReceiveStatus::kClosed);
  EXPECT_EQ(receive(*engine_, message_), Received::kClosed);
}

TEST_F(WorkerLinkTest, HangsUpOnAnInvalidBatch) {
  set_up();
  OutMessage message = batch_of(1, payload_of({"a"}));
  message.head[0] = 2;
  ASSERT_TRUE(engine_->send(std::move(message)));
  EXPECT_EQ(link_->next_batch(id_, batch_), ReceiveStatus::kClosed);
  EXPECT_EQ(receive(*engine_, message_), Received::kClosed);
}

TEST_F(WorkerLinkTest, ALargeReplyWaitsForABusyServer) {
  set_up();
  const std::string large(5'000'000, 'L');
  ReplyMessage reply;
  reply.results.push_back({.kind = ResultKind::kOutputs, .bytes = Bytes::copy_of(large), .blocks = {}});
  bool sent = false;
  Thread worker([&] { sent = link_->reply(1, reply); });
  EXPECT_TRUE(eventually([&] { return worker.asleep(); }));
  ASSERT_EQ(receive(*engine_, message_), Received::kMessage);
  EXPECT_TRUE(eventually([&] { return worker.finished(); }));
  EXPECT_TRUE(sent);
  ReplyMessage received;
  ASSERT_TRUE(parse(message_, received));
  EXPECT_TRUE(received.results.at(0).bytes.text() == large);
}

}  // namespace
}  // namespace service_streamer::ipc::support
