// A ClientLink whose Server is not there, or does not answer.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/client_link.h"
#include "support/ipc.h"

namespace service_streamer::support {
namespace {

using std::chrono::milliseconds;

TEST(ClientLinkWithoutServer, RequestsWaitForAServerThatStartsLater) {
  const std::string address = unused_address();
  Client client(address);
  const RemoteRequest early = sent(client.engine, {1});
  const RemoteRequest impatient = sent(client.engine, {1}, {.deadline = Clock::now() + milliseconds(20)});
  EXPECT_TRUE(impatient.ends_as(Outcome::kExpired));
  EXPECT_FALSE(early.done());
  Owner owner(kServed, {.address = address});
  owner.add();
  EXPECT_TRUE(early.answered());
}

TEST(ClientLinkWithoutServer, BeforeTheFirstConnectionRequestsWaitOnlyForTheFirstPatience) {
  constexpr Duration kFirstPatience = milliseconds(50);
  const std::string address = unused_address();
  Client client(address, kWaitingRoom, {.first_patience = kFirstPatience});
  std::vector<RemoteRequest> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(sent(client.engine, {1}, {.deadline = soon()}));
    pass_time_until(requests.back().request().arrived + kFirstPatience / 3);
  }
  for (const RemoteRequest& request : requests) {
    EXPECT_TRUE(request.ends_as(Outcome::kExpired));
    EXPECT_GE(request.request().ended - request.request().arrived, kFirstPatience);
    EXPECT_LT(request.request().ended, request.request().deadline);
  }

  {
    Owner owner(kServed, {.address = address});
    owner.add();
    ASSERT_TRUE(eventually([&] { return sent(client.engine, {1}).answered(); }));
  }
  const RemoteRequest later = sent(client.engine, {1}, {.deadline = Clock::now() + 4 * kFirstPatience});
  EXPECT_TRUE(later.ends_as(Outcome::kExpired));
  EXPECT_GE(later.request().ended, later.request().deadline) << "it was connected once";
}

TEST(ClientLinkWithoutServer, AProcessThatListensButDoesNotAnswerIsNotWaitedForEither) {
  const std::string address = unused_address();
  const FileDescriptor listener = ipc::listen_on(address);
  Client client(address, kWaitingRoom, {.first_patience = milliseconds(50)});
  const RemoteRequest first = sent(client.engine, {1});
  EXPECT_TRUE(first.ends_as(Outcome::kExpired));
  EXPECT_GE(first.request().ended - first.request().arrived, milliseconds(50));
  EXPECT_NE(client.client_link->connect_error().find(address), std::string::npos);
  const auto connection = connection_that_submits(listener);
  connection->send_all(ipc::make_hello(ipc::Role::kEngine));
  EXPECT_TRUE(eventually([&] { return client.client_link->connect_error().empty(); })) << "it answers";
}

TEST(ClientLinkWithoutServer, DoesNotTryToConnectWhenItsRequestsHaveEnded) {
  Client client(unused_address());
  const RemoteRequest request = sent(client.engine, {1}, {.deadline = Clock::now() + milliseconds(20)});
  EXPECT_TRUE(request.ends_as(Outcome::kExpired));
  EXPECT_TRUE(eventually([&] { return client.engine.stats().idle_workers == 1; })) << "it waits for the next request";
}

TEST(ClientLinkWithoutServer, ConnectsOnlyWhenThereIsSomethingToSend) {
  const std::string address = unused_address();
  const FileDescriptor listener = ipc::listen_on(address);
  Client client(address);
  Parker nobody_calls;
  nobody_calls.park(Clock::now() + milliseconds(20));
  EXPECT_FALSE(ipc::accept_from(listener));
  const RemoteRequest request = sent(client.engine, {1});
  EXPECT_TRUE(eventually([&] { return static_cast<bool>(ipc::accept_from(listener)); }));
}

TEST(ClientLinkWithoutServer, StopsWithoutAConnection) {
  Client client(unused_address());
  const RemoteRequest request = sent(client.engine, {1});
  client.client_link->stop();
  EXPECT_FALSE(request.done());
  EXPECT_EQ(client.engine.stats().queued_requests, 1);
  EXPECT_TRUE(request.cancel(client.engine));
}

}  // namespace
}  // namespace service_streamer::support
