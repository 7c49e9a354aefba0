// A Server and its clients.

#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "support/raw_client.h"

namespace service_streamer::support {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(ServerClients, EachRequestIsAnsweredOnce) {
  Owner owner;
  owner.add_ready();
  const RawClient client(*owner.server);
  client.submit(5, {1, 2});
  const ipc::EndedCall ended = client.result();
  EXPECT_EQ(ended.id, 5U);
  EXPECT_EQ(ended.outcome, Outcome::kAnswered);
  ASSERT_EQ(ended.ranges.size(), 1U);
  EXPECT_EQ(numbers_of(ended.ranges[0].result.bytes), (std::vector<int>{2, 3}));
  client.submit(5, {7});  // the id is free again
  EXPECT_EQ(client.result().outcome, Outcome::kAnswered);
}

TEST(ServerClients, TheSupervisorLearnsOfClientsThatConnectAndGo) {
  Owner owner;
  {
    const RawClient silent(*owner.server, false);
    const RawClient client(*owner.server);
    const std::optional<Server::Event> event = owner.next_event();
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->kind, Server::Event::Kind::kClientConnected);
    EXPECT_EQ(event->text, std::to_string(getpid()));
  }
  const std::optional<Server::Event> event = owner.next_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, Server::Event::Kind::kClientGone);
  EXPECT_EQ(event->text, std::to_string(getpid()));
  EXPECT_FALSE(owner.next_event(Duration::zero()).has_value()) << "one event for each, none without a hello";
}

TEST(ServerClients, ABatchMixesClientsAndEachGetsItsResultsInOneMessage) {
  Owner owner;
  Gate gate;
  std::atomic<std::size_t> ranges{0};
  owner.add_ready(gate.before([&ranges](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    ranges = batch.ranges.size();
    return add_one(batch, reply);
  }));
  const RemoteRequest first = sent(owner.engine, {0});
  ASSERT_TRUE(gate.entered());
  const RawClient one(*owner.server);
  const RawClient other(*owner.server);
  const RemoteRequest local = sent(owner.engine, {1});
  one.submit(1, {1});
  one.submit(2, {2});
  other.submit(1, {3});
  ASSERT_TRUE(eventually([&] { return owner.engine.stats().queued_requests == 4; }));
  gate.open();
  EXPECT_TRUE(first.answered() && local.answered());
  EXPECT_EQ(one.results().size(), 2U);
  EXPECT_EQ(other.results().size(), 1U);
  EXPECT_EQ(ranges, 4U);
}

TEST(ServerClients, RequestsRunInOrderOfArrivalAcrossClients) {
  Owner owner({.batch_size = 1, .policy = PolicyKind::kGreedy});
  Gate gate;
  std::vector<int> seen;
  owner.add_ready(gate.before([&seen](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    seen.push_back(numbers_of(batch.payload.bytes).front());
    return add_one(batch, reply);
  }));
  const RawClient one(*owner.server);
  const RawClient other(*owner.server);
  std::vector<int> expected;
  for (int i = 0; i < 6; ++i) {
    (i % 2 == 0 ? one : other).submit(static_cast<std::uint64_t>(i) + 1, {i});
    ASSERT_TRUE(eventually([&] {
      const EngineStats stats = owner.engine.stats();
      return stats.counters.submitted == static_cast<std::uint64_t>(i) + 1;
    }));
    expected.push_back(i);
  }
  gate.open();
  EXPECT_TRUE(one.have_ended(3) && other.have_ended(3));
  EXPECT_EQ(seen, expected);
}

TEST(ServerClients, TheRequestsOfADeadClientAreCancelledEvenIfTheyRun) {
  Owner owner({.batch_size = 1, .policy = PolicyKind::kGreedy});
  Gate gate;
  owner.add_ready(gate.before());
  RawClient client(*owner.server);
  client.submit(1, {1});
  ASSERT_TRUE(gate.entered());
  client.submit(2, {2});
  ASSERT_TRUE(eventually([&] { return owner.engine.stats().queued_requests == 1; }));
  client.die();
  EXPECT_TRUE(eventually([&] { return owner.engine.stats().counters.cancelled == 2; }));
  EXPECT_EQ(owner.engine.stats().queued_items, 0U) << "its slots are free";
  gate.open();
  EXPECT_TRUE(sent(owner.engine, {1}).answered());
}

TEST(ServerClients, CancelledRequestsAreReportedAsCancelled) {
  Owner owner({.batch_size = 1, .policy = PolicyKind::kGreedy});
  Gate gate;
  owner.add_ready(gate.before());
  const RawClient client(*owner.server);
  client.submit(1, {1});
  ASSERT_TRUE(gate.entered());
  client.cancel(1);
  const ipc::EndedCall ended = client.result();
  EXPECT_EQ(ended.outcome, Outcome::kCancelled);
  EXPECT_TRUE(ended.ranges.empty());
  client.cancel(1);   // has ended already
  client.cancel(77);  // unknown
  gate.open();
  client.submit(2, {2});
  EXPECT_EQ(client.result().id, 2U);
}

TEST(ServerClients, ExpiredRequestsAreReportedAsExpired) {
  Owner owner;
  const RawClient client(*owner.server);
  client.submit(1, {1}, {.deadline = Clock::now() + milliseconds(10)});
  EXPECT_EQ(client.result().outcome, Outcome::kExpired);
}

TEST(ServerClients, QueriesAboutARequest) {
  Owner owner({.batch_size = 1, .policy = PolicyKind::kGreedy});
  Gate gate;
  owner.add_ready(gate.before());
  const RawClient client(*owner.server);
  const auto query = [&](ipc::QueryKind kind, std::uint64_t request) {
    client.query(100 + request, {.kind = kind, .request = request, .change = {}});
    return client.reply(100 + request).yes;
  };
  client.submit(1, {1});
  ASSERT_TRUE(gate.entered());
  client.submit(2, {2});
  EXPECT_TRUE(query(ipc::QueryKind::kRunning, 1));
  EXPECT_FALSE(query(ipc::QueryKind::kRunning, 2));
  EXPECT_FALSE(query(ipc::QueryKind::kCancel, 1)) << "it runs";
  EXPECT_FALSE(query(ipc::QueryKind::kCancel, 3)) << "there is none";
  client.query(9, {.kind = ipc::QueryKind::kCancel, .request = 2, .change = {}});
  EXPECT_EQ(client.result().outcome, Outcome::kCancelled) << "it hears of the end first";
  EXPECT_TRUE(client.reply(9).yes);
}

TEST(ServerClients, QueriesAboutTheEngine) {
  Owner owner;
  const RawClient client(*owner.server);
  ipc::Query configure{.kind = ipc::QueryKind::kConfigure, .request = 0, .change = {.batch_size = 3}};
  client.query(1, configure);
  EXPECT_TRUE(client.reply(1).yes);
  EXPECT_EQ(owner.engine.options().batch_size, 3U);
  configure.change.batch_size = 0;
  client.query(2, configure);
  const ipc::QueryReply refused = client.reply(2);
  EXPECT_FALSE(refused.yes);
  EXPECT_NE(refused.text.find("batch_size"), std::string::npos);
  client.query(3, {.kind = ipc::QueryKind::kStats, .request = 0, .change = {}});
  EXPECT_NE(client.reply(3).text.find("\"batch_size\":3"), std::string::npos);
}

TEST(ServerClients, WaitReadyReportsThatAWorkerIsReadyOrThatNoneWillBe) {
  Owner owner;
  const RawClient client(*owner.server);
  const ipc::Query wait_ready{.kind = ipc::QueryKind::kWaitReady, .request = 0, .change = {}};
  client.query(1, wait_ready);
  client.query(2, {.kind = ipc::QueryKind::kStats, .request = 0, .change = {}});
  EXPECT_TRUE(client.reply(2).yes) << "others are answered meanwhile";
  owner.server->set_failure("init: no model");
  const ipc::QueryReply failed = client.reply(1);
  EXPECT_FALSE(failed.yes);
  EXPECT_EQ(failed.text, "init: no model");
  client.submit(3, {1});
  const ipc::EndedCall lost = client.result();
  EXPECT_EQ(lost.outcome, Outcome::kLost);
  EXPECT_EQ(lost.note, "init: no model");
  owner.server->set_failure(std::nullopt);
  client.query(4, wait_ready);
  owner.add();
  EXPECT_TRUE(client.reply(4).yes);
}

TEST(ServerClients, StopReportsTheEndOfEveryRequest) {
  Owner owner;
  const RawClient client(*owner.server);
  client.submit(1, {1});
  ASSERT_TRUE(eventually([&] { return owner.engine.stats().queued_requests == 1; }));
  owner.server->stop();
  EXPECT_EQ(client.result().outcome, Outcome::kNone) << "no worker had it";
  EXPECT_TRUE(client.is_cut_off());
  EXPECT_ANY_THROW(ipc::connect_to(owner.server->address())) << "a stopped server accepts no connection";
}

TEST(ServerClients, TheCloseMessageFollowsTheLastResultOfAnySize) {
  Owner owner;
  owner.add_ready([](const ipc::BatchMessage&, ipc::ReplyMessage& reply) {
    reply.results.push_back(outputs_of(std::vector<int>(1 << 20)));  // more than the socket takes
    return true;
  });
  const RawClient client(*owner.server);
  client.submit(1, {1});
  ASSERT_TRUE(eventually([&] { return owner.engine.stats().counters.completed == 1; }));
  const TimePoint waits_until =
      Clock::now() + std::chrono::seconds(1);  // the server waits until then for a client to read
  Thread stopping([&] { owner.server->stop(); });
  ipc::InMessage message;
  std::vector<ipc::EndedCall> ended;
  const bool answered = client.receive(message) && ipc::parse(message, ended) && ended.size() == 1 &&
                        ended.front().outcome == Outcome::kAnswered;
  const bool reply = answered && client.receive(message) && message.type == MessageType::kClosed;
  EXPECT_TRUE(reply || Clock::now() >= waits_until);
  EXPECT_TRUE(client.is_cut_off());
}

TEST(ServerClients, AClosedEngineAcceptsNoRequest) {
  Owner owner;
  close_remote(owner.engine, true);
  const RawClient client(*owner.server);
  client.submit(1, {1});
  const ipc::EndedCall ended = client.result();
  EXPECT_EQ(ended.id, 1U);
  EXPECT_EQ(ended.outcome, Outcome::kNone);
}

TEST(ServerClients, RequestsThatAWorkerHasEndAsClosed) {
  Owner owner({.batch_size = 1, .policy = PolicyKind::kGreedy});
  Gate gate;
  owner.add_ready(gate.before());
  const RawClient client(*owner.server);
  client.submit(1, {1});
  ASSERT_TRUE(gate.entered());
  abort_remote(owner.engine);
  EXPECT_EQ(client.result().outcome, Outcome::kClosed);
}

}  // namespace
}  // namespace service_streamer::support
