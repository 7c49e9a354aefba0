// Recordings that clients of a Server ask for.

#include <gtest/gtest.h>

#include <string>

#include "support/raw_client.h"
#include "support/recording.h"

namespace service_streamer::support {
namespace {

using ipc::Query;
using ipc::QueryKind;

const Query kStart{.kind = QueryKind::kStartRecording,
                   .request = 0,
                   .change = {},
                   .limit = std::chrono::minutes(1),
                   .max_events = 1000};
const Query kFinish{.kind = QueryKind::kFinishRecording, .request = 0, .change = {}};

bool ask(const RawClient& client, const Query& query, std::string* text = nullptr) {
  client.query(1, query);
  ipc::QueryReply reply = client.reply(1);
  if (text != nullptr) *text = std::move(reply.text);
  return reply.yes;
}

TEST(ServerRecording, AClientGetsTheEventsOfTheEngine) {
  Owner owner;
  owner.add_ready();
  const RawClient client(*owner.server);
  ASSERT_TRUE(ask(client, kStart));
  client.submit(5, {1, 2});
  EXPECT_EQ(client.result().outcome, Outcome::kAnswered);
  std::string text;
  ASSERT_TRUE(ask(client, kFinish, &text));
  // arrived, cut, part, sent, decoded, predicted, encoded, completed, ended
  EXPECT_EQ(events_in(text).size(), 9U);
  EXPECT_FALSE(ask(client, kFinish)) << "it has ended";
}

TEST(ServerRecording, ThereIsOneAtATimeAndItEndsWithItsClient) {
  Owner owner;
  RawClient client(*owner.server);
  const RawClient other(*owner.server);
  ASSERT_TRUE(ask(client, kStart));
  EXPECT_FALSE(ask(client, kStart));
  EXPECT_FALSE(ask(other, kStart));
  EXPECT_FALSE(ask(other, kFinish)) << "it belongs to another client";
  EXPECT_EQ(owner.engine.recorder().start(std::chrono::minutes(1), 10), 0U);
  client.die();
  EXPECT_TRUE(eventually([&] { return ask(other, kStart); }));
  EXPECT_TRUE(ask(other, kFinish));
}

}  // namespace
}  // namespace service_streamer::support
