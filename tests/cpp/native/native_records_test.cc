// What native workers leave for timelines and traces.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "support/native.h"
#include "support/recording.h"

namespace service_streamer::support {
namespace {

TEST(NativeRecords, RecordThePhasesOfEachRunThatSucceeds) {
  NativeServing serving(std::make_shared<IntModel>(refuse_13), {.isolation_budget = 1e9});
  const std::uint64_t recording = serving.engine.recorder().start(std::chrono::minutes(1), 100);
  const auto requests = sent_together(serving, {{1}, {13}, {4}});
  EXPECT_TRUE(requests[0].answered());
  EXPECT_TRUE(requests[1].ends_as(Outcome::kFailed));
  EXPECT_TRUE(requests[2].answered());
  const std::string events = serving.engine.recorder().finish(recording);
  const std::vector<LoggedEvent> parts = events_in(events, LoggedEvent::Kind::kSplit);
  const std::vector<LoggedEvent> computed = events_in(events, LoggedEvent::Kind::kComputed);
  ASSERT_EQ(computed.size(), 2U);
  EXPECT_TRUE(std::any_of(parts.begin(), parts.end(), [&](const LoggedEvent& part) {
    return part.batch == computed[0].batch && part.time <= computed[0].time;
  }));
}

TEST(NativeRecords, LeaveOneRecordOfABatchWithItsTracedRequests) {
  NativeServing serving(std::make_shared<IntModel>(refuse_13), {.isolate_errors = false});
  auto traced = std::make_shared<const std::string>("trace");
  std::vector<NativeRequest> requests;
  for (int item : {1, 2, 13}) {
    requests.emplace_back(std::vector<int>{item});
    if (item != 2) requests.back().call().request.context = traced;
    EXPECT_TRUE(requests.back().submit(serving.engine));
  }
  serving.start();
  for (const NativeRequest& request : requests) EXPECT_TRUE(request.ends_as(Outcome::kFailed));
  EXPECT_TRUE(requests[1].call().take_records().empty());
  const auto records = requests[0].call().take_records();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(requests[2].call().take_records(), records);
  EXPECT_TRUE(records[0]->claim());
  EXPECT_FALSE(records[0]->claim());
  ASSERT_EQ(records[0]->traced.size(), 2U);
  EXPECT_EQ(records[0]->traced[0].first, 0U);
  EXPECT_EQ(records[0]->traced[1].first, 2U);
  EXPECT_EQ(records[0]->requests, 3U);
  EXPECT_EQ(records[0]->error, "13 is bad luck");
}

}  // namespace
}  // namespace service_streamer::support
