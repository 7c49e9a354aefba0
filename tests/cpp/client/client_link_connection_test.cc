// A ClientLink whose Server starts, ends, restarts or breaks the protocol.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "support/client_link.h"
#include "support/ipc.h"

namespace service_streamer::support {
namespace {

using ipc::QueryReply;
using std::chrono::milliseconds;
using Wait = Completion::Wait;

TEST(ClientLinkConnection, ForwardedRequestsAreLostAtOnceWhenTheServerDies) {
  const std::string address = unused_address();
  Client client(address);
  std::unique_ptr<RemoteRequest> running;
  Gate gate;
  {
    // This server ends without a message.
    const FileDescriptor listener = ipc::listen_on(address);
    running = std::make_unique<RemoteRequest>(sent(client.engine, {1}));
    const auto connection = connection_that_submits(listener);
    connection->send_all(ipc::make_hello(ipc::Role::kEngine));
    EXPECT_FALSE(running->done());
  }
  EXPECT_TRUE(running->ends_as(Outcome::kLost));
  EXPECT_NE(running->call().note.find(address), std::string::npos) << running->call().note;
}

TEST(ClientLinkConnection, SurvivesRestartsOfTheServer) {
  const std::string address = unused_address();
  Client client(address);
  for (int round = 0; round < 5; ++round) {
    Owner owner(kServed, {.address = address});
    owner.add();
    EXPECT_TRUE(sent(client.engine, {round}).answered());
  }
}

TEST(ClientLinkConnection, RequestsThatAClosedServerDidNotReadWaitForTheNextServer) {
  for (const bool says_hello : {false, true}) {
    const std::string address = unused_address();
    Client client(address);
    std::vector<RemoteRequest> requests;
    {
      const FileDescriptor listener = ipc::listen_on(address);
      requests.push_back(sent(client.engine, {0}));
      const auto connection = connection_that_submits(listener);
      if (says_hello) {
        connection->send_all(ipc::make_hello(ipc::Role::kEngine));
        connection->send_all(ipc::make_text(ipc::MessageType::kClosed, {}));
        ASSERT_TRUE(eventually([&] { return client.engine.stats().queued_requests == 1; })) << "comes back";
        requests.push_back(sent(client.engine, {1}));
      }
    }
    requests.push_back(sent(client.engine, {2}));
    Owner next({.batch_size = 1, .policy = PolicyKind::kGreedy}, {.address = address});
    next.add();
    for (const RemoteRequest& request : requests) EXPECT_TRUE(request.answered()) << says_hello;
  }
}

TEST(ClientLinkConnection, RequestsThatAClosingServerDidNotAcceptWaitInOrderForTheNextServer) {
  const std::string address = unused_address();
  Client client(address);
  std::vector<RemoteRequest> requests;
  {
    Owner owner(kServed, {.address = address});
    for (int i = 0; i < 3; ++i) requests.push_back(sent(client.engine, {i}));
    ASSERT_TRUE(eventually([&] { return owner.engine.stats().queued_requests == 3; }));
    close_remote(owner.engine, false);
    for (int i = 3; i < 6; ++i) requests.push_back(sent(client.engine, {i}));
    EXPECT_TRUE(eventually([&] { return client.engine.stats().queued_requests == 6; })) << "not kept there";
  }
  EXPECT_EQ(client.engine.stats().running_items, 0U);
  std::vector<int> seen;
  Owner next(kServed, {.address = address});
  next.add([&seen](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    for (const int item : numbers_of(batch.payload.bytes)) seen.push_back(item);
    return add_one(batch, reply);
  });
  for (const RemoteRequest& request : requests) EXPECT_TRUE(request.answered());
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST(ClientLinkConnection, AClosingServerStillSendsResults) {
  const std::string address = unused_address();
  Client client(address);
  auto owner = std::make_unique<Owner>(EngineOptions{.batch_size = 1, .policy = PolicyKind::kGreedy},
                                       ipc::ServerOptions{.address = address});
  Gate gate;
  owner->add(gate.before());
  const RemoteRequest running = sent(client.engine, {1});
  ASSERT_TRUE(gate.entered());
  const RemoteRequest queued = sent(client.engine, {2});
  ASSERT_TRUE(eventually([&] { return owner->engine.stats().queued_requests == 1; }));
  close_remote(owner->engine, true);
  const RemoteRequest late = sent(client.engine, {3});
  const RemoteRequest cancelled = sent(client.engine, {4});
  const RemoteRequest expired = sent(client.engine, {5}, {.deadline = Clock::now() + milliseconds(10)});
  EXPECT_TRUE(expired.ends_as(Outcome::kExpired));
  ASSERT_TRUE(eventually([&] { return client.engine.stats().queued_requests == 2; }));
  // The request may have been sent already; then it returns at once.
  EXPECT_TRUE(eventually([&] { return cancelled.cancel(client.engine); })) << "the server has not accepted it";
  gate.open();
  EXPECT_TRUE(running.answered());
  EXPECT_TRUE(queued.answered());
  EXPECT_FALSE(late.done());
  owner.reset();
  Owner next(kServed, {.address = address});
  next.add();
  EXPECT_TRUE(late.answered());
}

TEST(ClientLinkConnection, RequestsThatAWorkerHasAreLostWhenTheServerCloses) {
  const std::string address = unused_address();
  Client client(address);
  Owner owner(kServed, {.address = address});
  Gate gate;
  owner.add(gate.before());
  const RemoteRequest running = sent(client.engine, {1});
  ASSERT_TRUE(gate.entered());
  abort_remote(owner.engine);
  EXPECT_TRUE(running.ends_as(Outcome::kLost));
  EXPECT_NE(running.call().note.find(address), std::string::npos) << running.call().note;
}

TEST(ClientLinkConnection, IfTheOwnerDoesNotReturnRequestsThatWereNotAcceptedEndAsClosed) {
  auto owner = std::make_unique<Owner>();
  Client client(owner->server->address(), kWaitingRoom, {.owner_returns = false});
  const RemoteRequest request = sent(client.engine, {1});
  ASSERT_TRUE(eventually([&] { return owner->engine.stats().queued_requests == 1; }));
  close_remote(owner->engine, false);
  EXPECT_TRUE(request.ends_as(Outcome::kClosed));
  EXPECT_TRUE(sent(client.engine, {2}).ends_as(Outcome::kClosed));
  EXPECT_TRUE(sent(client.engine, {3}).ends_as(Outcome::kClosed)) << "each at once";
}

TEST(ClientLinkConnection, IfTheOwnerDoesNotReturnAFailedConnectClosesTheEngine) {
  for (const std::string& address : {unused_address(), "/nowhere/" + unused_address()}) {
    Client client(address, kWaitingRoom, {.owner_returns = false});
    EXPECT_TRUE(sent(client.engine, {1}).ends_as(Outcome::kClosed));
    EXPECT_TRUE(client.engine.closed());
    EXPECT_FALSE(RemoteRequest({2}).submit(client.engine));
    QueryReply reply;
    EXPECT_EQ(client.client_link->wait_ready(reply, client.sleeping.waiter(), TimePoint::max()), Wait::kTimeout)
        << "at once";
  }
}

TEST(ClientLinkConnection, IfTheOwnerDoesNotReturnWaitReadyEnds) {
  Client client(unused_address(), kWaitingRoom, {.owner_returns = false});
  QueryReply reply;
  EXPECT_EQ(client.client_link->wait_ready(reply, client.sleeping.waiter(), TimePoint::max()), Wait::kTimeout);
  EXPECT_TRUE(client.engine.closed());
}

TEST(ClientLinkConnection, RequestsThatReturnToAClosedEngineEnd) {
  Owner owner;
  Client client(owner.server->address());
  const RemoteRequest request = sent(client.engine, {1});
  ASSERT_TRUE(eventually([&] { return owner.engine.stats().queued_requests == 1; }));
  close_remote(client.engine, true);
  close_remote(owner.engine, false);
  EXPECT_TRUE(request.ends_as(Outcome::kClosed));
}

TEST(ClientLinkConnection, StopEndsForwardedRequestsOnly) {
  Owner owner;
  Client client(owner.server->address());
  const RemoteRequest forwarded = sent(client.engine, {1});
  ASSERT_TRUE(eventually([&] { return owner.engine.stats().queued_requests == 1; }));
  client.client_link->stop();
  client.client_link->stop();
  EXPECT_TRUE(forwarded.ends_as(Outcome::kClosed));
  EXPECT_TRUE(eventually([&] { return owner.engine.stats().counters.cancelled == 1; })) << "and frees its slot there";
  const RemoteRequest queued = sent(client.engine, {2});
  EXPECT_TRUE(queued.cancel(client.engine)) << "the server has not accepted it";
  QueryReply reply;
  EXPECT_EQ(client.client_link->stats(reply, client.sleeping.waiter(), soon()), Wait::kTimeout);
}

TEST(ClientLinkConnection, WaitReadySurvivesBrokenConnections) {
  const std::string address = unused_address();
  Client client(address);
  std::atomic<bool> ready{false};
  Thread waiting([&] {
    Sleeping sleeping;
    QueryReply reply;
    EXPECT_EQ(client.client_link->wait_ready(reply, sleeping.waiter(), soon()), Wait::kDone);
    ready = reply.yes;
  });
  {
    const Owner first(kServed, {.address = address});
  }
  EXPECT_FALSE(waiting.finished());
  Owner second(kServed, {.address = address});
  second.add();
  EXPECT_TRUE(eventually([&] { return ready.load(); }));
}

TEST(ClientLinkConnection, DisconnectsFromAServerThatBreaksTheProtocol) {
  for (int kind = 0; kind < 4; ++kind) {
    const std::string address = unused_address();
    const FileDescriptor listener = ipc::listen_on(address);
    Client client(address);
    const RemoteRequest request = sent(client.engine, {1});
    const auto connection = connection_that_submits(listener);
    if (kind > 0) connection->send_all(ipc::make_hello(ipc::Role::kEngine));
    ipc::EndedCall answer{.id = 1, .outcome = Outcome::kAnswered, .note = {}, .ranges = {}};  // without results
    if (kind == 2) answer.id = 99;
    if (kind == 3) answer.ranges.push_back({.begin = 0, .count = 2, .result = outputs_of({1, 2})});
    connection->send_all(ipc::make_results({&answer, 1}));
    EXPECT_TRUE(request.ends_as(Outcome::kLost)) << kind;
  }
}

}  // namespace
}  // namespace service_streamer::support
