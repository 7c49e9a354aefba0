// A ClientLink with a Server: forwarding, results, cancels and queries.

#include "service_streamer/client/client_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/client_link.h"

namespace service_streamer::support {
namespace {

using ipc::QueryReply;
using std::chrono::milliseconds;
using Wait = Completion::Wait;

TEST(ClientLink, ForwardsRequestsAndReturnsResults) {
  Owner owner;
  owner.add_ready();
  Client client(owner.server->address());
  EXPECT_TRUE(sent(client.engine, {1, 2, 3}).answered());
  EXPECT_TRUE(sent(client.engine, {4}).answered());
  EXPECT_EQ(owner.engine.stats().counters.completed, 2U);
  EXPECT_EQ(client.engine.stats().counters.completed, 2U);
  EXPECT_EQ(client.engine.stats().running_items, 0U);
}

TEST(ClientLink, TraceContextsTravel) {
  Owner owner;
  std::vector<std::string> seen;
  owner.add_ready([&seen](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    std::ranges::copy(contexts_of(batch), std::back_inserter(seen));
    return add_one(batch, reply);
  });
  Client client(owner.server->address());
  const RemoteRequest traced = sent(client.engine, {1}, {.context = context_of("context")});
  EXPECT_TRUE(traced.answered());
  EXPECT_TRUE(sent(client.engine, {2}).answered());
  EXPECT_EQ(seen, (std::vector<std::string>{"context", ""}));
  EXPECT_EQ(traced.request().batch_items, 0U) << "the batch is the other engine's";
}

TEST(ClientLink, ForwardsWholeRequestsOfAnySize) {
  Owner owner;
  owner.add_ready();
  owner.add_ready();
  Client client(owner.server->address());
  EXPECT_TRUE(sent(client.engine, std::vector<int>(50'000, 7)).answered());
}

TEST(ClientLink, ServesManyCallersOfManyClients) {
  Owner owner({.batch_size = 64});
  owner.add_ready();
  owner.add_ready();
  Client one(owner.server->address());
  Client other(owner.server->address());
  std::vector<std::unique_ptr<Thread>> callers;
  std::atomic<int> answered{0};
  constexpr int kRounds = 200 / kStressShare;
  for (int i = 0; i < 8; ++i) {
    callers.push_back(std::make_unique<Thread>([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        answered += sent((i % 2 == 0 ? one : other).engine, {i, round}).answered() ? 1 : 0;
      }
    }));
  }
  callers.clear();
  EXPECT_EQ(answered, 8 * kRounds);
}

TEST(ClientLink, ErrorsLossesAndDeadlinesArriveUnchanged) {
  Owner owner(kServed, {.retries = 0, .address = {}});
  Client client(owner.server->address());
  const RemoteRequest expired = sent(client.engine, {1}, {.deadline = Clock::now() + milliseconds(10)});
  EXPECT_TRUE(expired.ends_as(Outcome::kExpired));
  owner.add_ready([](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    add_one(batch, reply);
    reply.results[0].kind = ipc::ResultKind::kError;
    return numbers_of(batch.payload.bytes).front() != 13;
  });
  const RemoteRequest failed = sent(client.engine, {1});
  EXPECT_TRUE(failed.ends_as(Outcome::kFailed));
  ASSERT_EQ(failed.call().ranges.size(), 1U);
  EXPECT_EQ(failed.call().ranges[0].result.kind, ipc::ResultKind::kError);
  const RemoteRequest lost = sent(client.engine, {13});
  EXPECT_TRUE(lost.ends_as(Outcome::kLost));
  EXPECT_NE(lost.call().note.find("died with the batch"), std::string::npos) << lost.call().note;
}

TEST(ClientLink, ACancelHereCancelsThere) {
  Owner owner({.batch_size = 1, .policy = PolicyKind::kGreedy});
  Gate gate;
  owner.add_ready(gate.before());
  Client client(owner.server->address());
  const RemoteRequest running = sent(client.engine, {1});
  ASSERT_TRUE(gate.entered());
  const RemoteRequest queued = sent(client.engine, {2});
  ASSERT_TRUE(eventually([&] { return owner.engine.stats().queued_requests == 1; }));
  EXPECT_TRUE(queued.cancel(client.engine, true));
  EXPECT_TRUE(running.cancel(client.engine, true));
  EXPECT_TRUE(eventually([&] { return owner.engine.stats().counters.cancelled == 2; }));
  EXPECT_TRUE(eventually([&] { return client.engine.stats().running_items == 0; })) << "and let go of here";
}

TEST(ClientLink, CancelsARequestOnlyIfItIsQueuedThere) {
  Owner owner({.batch_size = 1, .policy = PolicyKind::kGreedy});
  Gate gate;
  owner.add_ready(gate.before());
  Client client(owner.server->address());
  const RemoteRequest running = sent(client.engine, {1});
  ASSERT_TRUE(gate.entered());
  const RemoteRequest queued = sent(client.engine, {2});
  ASSERT_TRUE(eventually([&] { return owner.engine.stats().queued_requests == 1; }));
  EXPECT_FALSE(queued.cancel(client.engine)) << "here it runs";
  QueryReply reply;
  Waiter& waiter = client.sleeping.waiter();
  EXPECT_EQ(client.client_link->running(queued.request(), reply, waiter, soon()), Wait::kDone);
  EXPECT_FALSE(reply.yes);
  EXPECT_EQ(client.client_link->running(running.request(), reply, waiter, soon()), Wait::kDone);
  EXPECT_TRUE(reply.yes);
  EXPECT_EQ(client.client_link->cancel(queued.request(), reply, waiter, soon()), Wait::kDone);
  EXPECT_TRUE(reply.yes);
  EXPECT_TRUE(queued.done()) << "when it is reply, it has ended";
  EXPECT_TRUE(queued.ends_as(Outcome::kCancelled));
  EXPECT_EQ(client.client_link->cancel(running.request(), reply, waiter, soon()), Wait::kDone);
  EXPECT_FALSE(reply.yes);
  gate.open();
  EXPECT_TRUE(running.answered());
}

TEST(ClientLink, QueriesTheServer) {
  Owner owner;
  Client client(owner.server->address());
  Waiter& waiter = client.sleeping.waiter();
  QueryReply reply;
  EXPECT_EQ(client.client_link->configure({.batch_size = 5}, reply, waiter, soon()), Wait::kDone);
  EXPECT_TRUE(reply.yes);
  EXPECT_THROW(client.client_link->configure({.batch_size = 0}, reply, waiter, soon()), std::invalid_argument);
  EXPECT_EQ(client.client_link->stats(reply, waiter, soon()), Wait::kDone);
  EXPECT_NE(reply.text.find("\"batch_size\":5"), std::string::npos);
  EXPECT_EQ(client.client_link->wait_ready(reply, waiter, Clock::now() + milliseconds(10)), Wait::kTimeout);
  owner.add();
  EXPECT_EQ(client.client_link->wait_ready(reply, waiter, soon()), Wait::kDone);
  EXPECT_TRUE(reply.yes);
}

TEST(ClientLink, AQueryTimesOutWithoutAServer) {
  Client client(unused_address());
  QueryReply reply;
  const TimePoint asked = Clock::now();
  EXPECT_EQ(client.client_link->stats(reply, client.sleeping.waiter(), soon()), Wait::kTimeout);
  EXPECT_LT(Clock::now() - asked, kPatience / 2);
}

TEST(ClientLink, ASignalInterruptsAQuery) {
  Owner owner;
  Client client(owner.server->address());
  std::atomic<Wait> end{Wait::kDone};
  Thread waiting([&] {
    Sleeping sleeping;
    QueryReply reply;
    end = client.client_link->wait_ready(reply, sleeping.waiter(), soon());
  });
  EXPECT_TRUE(waiting.interrupt_until([&] { return waiting.finished(); }));
  EXPECT_EQ(end, Wait::kInterrupted);
}

TEST(ClientLink, TheLocalQueueFillsWhenTheServerIsFull) {
  Owner owner({.batch_size = 1000, .policy = PolicyKind::kGreedy, .max_queue = 2});
  Gate gate;
  owner.add_ready(gate.before());
  Client client(owner.server->address(),
                {.policy = PolicyKind::kGreedy, .max_queue = 10, .overflow = Overflow::kReject});
  // Besides the queues, the sockets and buffers hold a few megabytes.
  std::vector<RemoteRequest> accepted;
  for (int refused = 0; refused < 1000 && accepted.size() < 5000;) {
    RemoteRequest request(std::vector<int>(1000));
    if (request.submit(client.engine)) {
      accepted.push_back(std::move(request));
      refused = 0;
    } else {
      ++refused;
      std::this_thread::yield();
    }
  }
  EXPECT_LT(accepted.size(), 5000U);
  gate.open();
  for (const RemoteRequest& request : accepted) EXPECT_TRUE(request.wait());
}

}  // namespace
}  // namespace service_streamer::support
