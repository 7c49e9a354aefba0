// Clients that send too much, read too little, break the protocol or die, and their effect on others.

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "support/raw_client.h"

namespace service_streamer::support {
namespace {

TEST(ServerPressure, AClientThatSendsMoreThanFitsIsNotReadFrom) {
  Owner owner({.batch_size = 1, .policy = PolicyKind::kGreedy, .max_queue = 4, .overflow = Overflow::kReject});
  Gate gate;
  owner.add_ready(gate.before());
  const RawClient greedy(*owner.server);
  constexpr int kSent = 50;
  for (std::uint64_t id = 1; id <= kSent; ++id) greedy.submit(id, {1});
  ASSERT_TRUE(eventually([&] { return owner.engine.stats().waiting_requests == 1; }));
  const RawClient modest(*owner.server);
  modest.query(1, {.kind = ipc::QueryKind::kStats, .request = 0, .change = {}});
  EXPECT_TRUE(modest.reply(1).yes) << "others are";
  EXPECT_EQ(owner.engine.stats().counters.submitted, 6U) << "a running one, a full queue, one that waits";
  gate.open();
  EXPECT_TRUE(greedy.have_ended(kSent));
  EXPECT_EQ(owner.engine.stats().counters.rejected, 0U);
}

TEST(ServerPressure, ABlockedClientThatDiesIsRemoved) {
  Owner owner({.batch_size = 1, .policy = PolicyKind::kGreedy, .max_queue = 4});
  Gate gate;
  owner.add_ready(gate.before());
  RawClient client(*owner.server);
  for (std::uint64_t id = 1; id <= 50; ++id) client.submit(id, {1});
  ASSERT_TRUE(eventually([&] { return owner.engine.stats().waiting_requests == 1; }));
  client.die();
  EXPECT_TRUE(eventually([&] { return owner.engine.stats().counters.cancelled == 6; }));
}

TEST(ServerPressure, AClientThatBreaksTheProtocolIsDisconnectedWithoutEffectOnOthers) {
  Owner owner;
  owner.add_ready();
  const RawClient honest(*owner.server);
  const auto is_cut_off = [&](auto misbehave, bool greets = true) {
    const RawClient client(*owner.server, greets);
    misbehave(client);
    return client.is_cut_off();
  };
  EXPECT_TRUE(is_cut_off([](const RawClient& client) { client.submit(1, {1}); }, false)) << "no hello";
  EXPECT_TRUE(is_cut_off(
      [](const RawClient& client) { client.connection->send_all(ipc::make_hello(ipc::Role::kWorker)); }, false));
  EXPECT_TRUE(is_cut_off([](const RawClient& client) { client.submit(1, {}); })) << "nothing to do";
  EXPECT_TRUE(is_cut_off([](const RawClient& client) {
    client.submit(1, {1}, {.priority = -1});
    client.connection->send_all(ipc::make_reply(1, {}));
  }));
  EXPECT_TRUE(is_cut_off([](const RawClient& client) {
    client.connection->send_all(ipc::make_opaque(MessageType::kQuery, 1, ipc::Bytes::copy_of("?")));
  }));
  EXPECT_TRUE(is_cut_off([](const RawClient& client) {
    const ipc::SubmitHead head{.id = 1};
    const ipc::Payload payload = payload_of({1});
    const std::array<ipc::SubmitHead, 2> heads{head, head};
    const std::array<const ipc::Payload*, 2> payloads{&payload, &payload};
    client.connection->send_all(ipc::make_submit(heads, payloads));
  })) << "a number twice";
  EXPECT_TRUE(is_cut_off([](const RawClient& client) {
    const std::string noise(1000, '\xff');
    EXPECT_EQ(write(client.connection->fd(), noise.data(), noise.size()), 1000);
  }));
  honest.submit(1, {1});
  EXPECT_EQ(honest.result().outcome, Outcome::kAnswered);
  EXPECT_TRUE(eventually([&] {
    const EngineStats stats = owner.engine.stats();
    return stats.queued_requests == 0 && stats.running_items == 0;
  }));
}

TEST(ServerPressure, AClientThatLeavesResultsUnreadIsNotReadFrom) {
  Owner owner;
  owner.add_ready([](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    for (std::size_t i = 0; i < batch.ranges.size(); ++i) {
      reply.results.push_back(
          {.kind = ipc::ResultKind::kOutputs, .bytes = bytes_of(std::vector<int>(4U << 20)), .blocks = {}});
    }
    return true;
  });
  const RawClient client(*owner.server);
  constexpr std::uint64_t kRequests = 8;  // 16 MB each: the fifth exceeds the limit
  std::uint64_t sent_off = 0;
  for (std::uint64_t id = 1; id <= kRequests; ++id) {
    client.submit(id, {1});
    if (!eventually([&] { return owner.engine.stats().counters.completed >= id || id > 5; })) break;
    sent_off = id;
  }
  EXPECT_EQ(sent_off, kRequests);
  EXPECT_LT(owner.engine.stats().counters.submitted, kRequests);
  EXPECT_TRUE(client.have_ended(kRequests));
}

TEST(ServerPressure, LeavesNoDescriptorOpen) {
  Owner owner;
  owner.add_ready();
  const std::size_t before = ipc::support::open_descriptors();
  constexpr std::size_t kWakeEvent = 1;  // the worker opens it when it first sleeps, perhaps after the count
  for (int round = 0; round < 20; ++round) {
    RawClient client(*owner.server);
    client.submit(1, {1});
    client.result();
  }
  EXPECT_TRUE(eventually([&] { return ipc::support::open_descriptors() <= before + kWakeEvent; }));
}

}  // namespace
}  // namespace service_streamer::support
