// Messages for which there is no memory: they are dropped, their size is reported, and no process ends.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/client_link.h"
#include "support/ipc.h"
#include "support/no_memory.h"
#include "support/raw_client.h"

namespace service_streamer::ipc::support {
namespace {

using service_streamer::support::add_one;
using service_streamer::support::bytes_of;
using service_streamer::support::Client;
using service_streamer::support::Gate;
using service_streamer::support::NoMemoryFor;
using service_streamer::support::Owner;
using service_streamer::support::RawClient;
using service_streamer::support::RemoteRequest;
using service_streamer::support::sent;

// Items without bytes: parsed, each takes exactly 8 bytes; the message is a little larger.
constexpr std::size_t kItems = 10'000;

Payload empty_items() {
  Payload payload;
  payload.ends.resize(kItems);
  return payload;
}

NoMemoryFor no_memory_for_the_items() {
  return NoMemoryFor(8 * kItems, 8 * kItems + 1);
}

TEST(NoMemory, AMessageArrivesWithoutItsBodyAndTheNextOneIsComplete) {
  for (const std::size_t size : {std::size_t{1} << 20, std::size_t{40} << 20}) {
    const Pair pair;
    const Payload payload = payload_of({std::string(size, 'x')});
    ASSERT_TRUE(pair.here->send(batch_of(1, payload)));
    ASSERT_TRUE(pair.here->send(batch_of(2, payload)));
    const auto next = [&pair] {
      InMessage message;
      Received received = Received::kNothing;
      while (received == Received::kNothing && pair.here->flush()) received = pair.there->receive(message);
      EXPECT_EQ(received, Received::kMessage);
      return message;
    };
    {
      const NoMemoryFor large(size / 2);
      const InMessage message = next();
      EXPECT_EQ(message.id, 1U);
      EXPECT_TRUE(message.body.empty());
      EXPECT_GT(message.dropped_bytes, size);
    }
    InMessage message = next();
    EXPECT_EQ(message.id, 2U);
    EXPECT_EQ(message.dropped_bytes, 0U);
    BatchMessage batch;
    ASSERT_TRUE(parse(message, batch));
    EXPECT_EQ(item_of(batch.payload, 0), std::string(size, 'x'));
  }
}

TEST(NoMemory, AWorkerLearnsTheSizeOfADroppedBatch) {
  auto [a, b] = socket_pair();
  const auto engine = Connection::make(std::move(a));
  WorkerLink link(std::move(b));
  ASSERT_TRUE(engine->send(make_hello(Role::kEngine)));
  ASSERT_TRUE(engine->send(make_opaque(MessageType::kSetup, 0, Bytes::copy_of("model"))));
  Bytes setup;
  ASSERT_EQ(link.receive_setup(setup), WorkerLink::ReceiveStatus::kReceived);

  ASSERT_TRUE(engine->send(batch_of(1, payload_of({std::string(100'000, 'x')}))));
  ASSERT_TRUE(engine->send(batch_of(2, empty_items())));
  ASSERT_TRUE(engine->send(batch_of(3, payload_of({"x"}))));
  std::uint64_t id = 0;
  BatchMessage batch;
  {
    const NoMemoryFor large(100'000);
    ASSERT_EQ(link.next_batch(id, batch), WorkerLink::ReceiveStatus::kReceived);
  }
  EXPECT_EQ(id, 1U);
  EXPECT_GT(batch.dropped_bytes, 100'000U);
  {
    const NoMemoryFor items = no_memory_for_the_items();
    ASSERT_EQ(link.next_batch(id, batch), WorkerLink::ReceiveStatus::kReceived);
  }
  EXPECT_EQ(id, 2U);
  EXPECT_GT(batch.dropped_bytes, 8 * kItems);
  ASSERT_EQ(link.next_batch(id, batch), WorkerLink::ReceiveStatus::kReceived);
  EXPECT_EQ(batch.dropped_bytes, 0U);
  EXPECT_EQ(item_of(batch.payload, 0), "x");
}

TEST(NoMemory, AServerWithoutMemoryForARequestDisconnectsItsClientOnly) {
  Owner owner;
  owner.add_ready();
  const RawClient honest(*owner.server);
  const RawClient client(*owner.server);
  const Payload payload = empty_items();
  const Payload* const one = &payload;
  const SubmitHead head{.id = 1};
  OutMessage message = make_submit({&head, 1}, {&one, 1});
  {
    const NoMemoryFor items = no_memory_for_the_items();
    client.connection->send_all(std::move(message));
    EXPECT_TRUE(client.is_cut_off());
  }
  honest.submit(1, {1});
  EXPECT_EQ(honest.result().outcome, Outcome::kAnswered);
}

TEST(NoMemory, AServerWithoutMemoryForAReplyLosesTheBatchAndKeepsTheWorker) {
  constexpr std::size_t kLarge = 1'000'000;
  Owner owner;
  std::atomic<bool> large{true};
  owner.add_ready([&large, answer = bytes_of(std::vector<int>(kLarge / sizeof(int)))](const BatchMessage& batch,
                                                                                      ReplyMessage& reply) {
    add_one(batch, reply);
    if (large) reply.results[0].bytes = answer;
    return true;
  });
  {
    const NoMemoryFor answers(kLarge);
    const RemoteRequest request = sent(owner.engine, {1});
    EXPECT_TRUE(request.ends_as(Outcome::kLost));
    EXPECT_NE(request.call().note.find("no memory for an answer"), std::string::npos) << request.call().note;
  }
  large = false;
  EXPECT_TRUE(sent(owner.engine, {1}).answered());
  EXPECT_EQ(owner.workers.front()->batches(), 2);
}

TEST(NoMemory, AReplyIsPublishedEvenWithoutMemoryForTheNextBatch) {
  constexpr std::size_t kList = 64 * sizeof(RequestRange);  // allocated at the start of each batch
  Owner owner;
  Gate gate;
  owner.add_ready(gate.before());
  const RemoteRequest running = sent(owner.engine, {1});
  ASSERT_TRUE(gate.entered());
  const RemoteRequest queued = sent(owner.engine, {2});
  {
    const NoMemoryFor list(kList, kList + 1);
    gate.open();
    EXPECT_TRUE(running.answered());
    EXPECT_GT(list.felt(), 0);
  }
  owner.add();
  EXPECT_TRUE(queued.answered());
}

TEST(NoMemory, AClientWithoutMemoryToForwardARequestLosesItOnly) {
  Owner owner;
  owner.add_ready();
  Client client(owner.server->address());
  EXPECT_TRUE(sent(client.engine, {1}).answered());
  const RemoteRequest large(std::vector<int>{});
  large.call().payload = empty_items();
  large.request().size = kItems;
  {
    const NoMemoryFor message(8 * kItems);
    ASSERT_TRUE(large.submit(client.engine));
    EXPECT_TRUE(large.ends_as(Outcome::kLost));
    EXPECT_GT(message.felt(), 0);
  }
  EXPECT_TRUE(sent(client.engine, {1}).answered());
}

}  // namespace
}  // namespace service_streamer::ipc::support
