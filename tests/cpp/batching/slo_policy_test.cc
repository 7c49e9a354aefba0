// What SloPolicy learns and predicts, with invented times.

#include "service_streamer/batching/slo_policy.h"

#include <gtest/gtest.h>

namespace service_streamer {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart{hours(1)};
constexpr Duration kNone = Duration::zero();

Duration service(std::size_t items) {
  return milliseconds(5) + items * std::chrono::microseconds(200);
}

// A policy that has seen batches of 5 + 0.2 n ms.
class Server {
 public:
  explicit Server(Duration slo, int workers = 1) : policy({slo, 64, workers}) {
    for (int round = 0; round < 40; ++round) run(round % 2 == 0 ? 8 : 48);
  }

  void run(std::size_t items, Duration age = kNone) { run(items, service(items), age); }

  void run(std::size_t items, Duration time, Duration age) {
    policy.dispatched(now, items);
    now += time;
    policy.completed(now, now - time, items, age);
  }

  bool accepts(std::size_t ahead, std::size_t size = 1, Duration waited = kNone) {
    return policy.refuse(now, waited, ahead, size) == kNone;
  }

  SloPolicy policy;
  TimePoint now = kStart;
};

void expect_near(Duration value, Duration expected) {
  EXPECT_NEAR(value.count(), expected.count(), expected.count() / 50.0);
}

TEST(SloPolicy, AcceptsEverythingBeforeTheFirstBatch) {
  SloPolicy policy({milliseconds(1), 64, 1});
  EXPECT_EQ(policy.refuse(kStart, kNone, 1000, 1000), kNone);
  EXPECT_EQ(policy.batch_limit(), 64U);
  EXPECT_EQ(policy.least_service(), kNone);
}

TEST(SloPolicy, RefusesWhatWouldBeLateAndSaysWhenToComeAgain) {
  Server server(milliseconds(40));
  EXPECT_EQ(server.policy.batch_limit(), 64U);
  EXPECT_TRUE(server.accepts(0, 64));
  EXPECT_TRUE(server.accepts(127));  // two full batches: 35.6 ms
  EXPECT_FALSE(server.accepts(128));
  expect_near(server.policy.refuse(server.now, kNone, 128, 1), 3 * service(64) - milliseconds(40));
}

TEST(SloPolicy, ARequestThatHasWaitedElsewhereHasLessTimeLeft) {
  Server server(milliseconds(40));
  EXPECT_TRUE(server.accepts(0, 1, milliseconds(30)));
  EXPECT_FALSE(server.accepts(0, 1, milliseconds(36)));
}

TEST(SloPolicy, ARunningBatchIsWaitedFor) {
  Server server(milliseconds(40));
  server.policy.dispatched(server.now, 64);
  EXPECT_TRUE(server.accepts(63));
  EXPECT_FALSE(server.accepts(64));
  Server two(milliseconds(40), 2);
  two.policy.dispatched(two.now, 64);
  EXPECT_TRUE(two.accepts(64 + 63)) << "the other worker takes the first batch, and then this one its second";
}

TEST(SloPolicy, AnOverdueBatchIsExpectedToTakeAsLongAgain) {
  Server server(milliseconds(40));
  server.policy.dispatched(server.now, 8);
  EXPECT_TRUE(server.accepts(0));
  server.now += service(8) + milliseconds(30);
  EXPECT_FALSE(server.accepts(0));
  Server two(milliseconds(40), 2);
  two.policy.dispatched(two.now, 8);
  two.now += service(8) + milliseconds(30);
  two.policy.dispatched(two.now, 8);
  EXPECT_TRUE(two.accepts(0)) << "the other worker is free sooner";
}

TEST(SloPolicy, BatchesAreSoSmallThatTheyFollowEachOtherInTime) {
  const Server one(milliseconds(20));
  EXPECT_NEAR(static_cast<double>(one.policy.batch_limit()), 25, 1);  // 2 x 10 ms
  const Server four(milliseconds(20), 4);
  EXPECT_NEAR(static_cast<double>(four.policy.batch_limit()), 55, 1);  // 1.25 x 16 ms
}

TEST(SloPolicy, TheLatestStartLeavesTimeForTheBatch) {
  const Server server(milliseconds(40));
  expect_near(server.policy.latest_start(kStart, 10) - kStart, milliseconds(40) - service(10));
}

TEST(SloPolicy, AFrontRequestIsHopelessIfTheQueuedBatchWouldEndTooLate) {
  const Server server(milliseconds(40));
  EXPECT_FALSE(server.policy.hopeless(server.now, server.now - milliseconds(32), 1, 1));
  EXPECT_TRUE(server.policy.hopeless(server.now, server.now - milliseconds(32), 1, 64));
  EXPECT_TRUE(server.policy.hopeless(server.now, server.now - milliseconds(36), 1, 1));
}

TEST(SloPolicy, LateBatchesRaiseTheMarginAndBatchesInTimeLowerIt) {
  Server server(milliseconds(40));
  EXPECT_TRUE(server.accepts(127));
  server.run(64, milliseconds(30));
  EXPECT_TRUE(server.accepts(127)) << "35.6 of 38.75 ms";
  for (int batch = 0; batch < 3; ++batch) server.run(64, milliseconds(30));
  EXPECT_FALSE(server.accepts(127));
  for (int batch = 0; batch < 400; ++batch) server.run(64, milliseconds(20));
  EXPECT_TRUE(server.accepts(127));
}

TEST(SloPolicy, AStragglerDoesNotRaiseTheMargin) {
  Server server(milliseconds(40));
  server.run(64, milliseconds(60), kNone);
  for (int batch = 0; batch < 40; ++batch) server.run(64);
  EXPECT_TRUE(server.accepts(127));
}

TEST(SloPolicy, ProbesLetItLearnThatTheModelHasBecomeFaster) {
  Server server(milliseconds(40));
  for (int batch = 0; batch < 40; ++batch) server.run(1, milliseconds(300), kNone);
  EXPECT_FALSE(server.accepts(0));
  server.now += milliseconds(8 * 40);
  EXPECT_TRUE(server.accepts(0)) << "a probe";
  EXPECT_FALSE(server.accepts(0)) << "one at a time";
  int probes = 0;
  for (; !server.accepts(0) && probes < 20; ++probes) {
    server.now += milliseconds(8 * 40);
    EXPECT_TRUE(server.accepts(0));
    server.run(1);
  }
  EXPECT_LE(probes, 6);
}

TEST(SloPolicy, ASlowFirstBatchIsForgottenAtOnce) {
  SloPolicy policy({milliseconds(40), 64, 1});
  TimePoint now = kStart;
  for (const Duration time : {Duration(seconds(5)), service(1)}) {
    policy.dispatched(now, 1);
    policy.completed(now + time, now, 1, kNone);
    now += time;
  }
  expect_near(policy.least_service(), service(1));
}

TEST(SloPolicy, WhileItRefusesItTriesLargerBatches) {
  Server server(milliseconds(20));
  const std::size_t limit = server.policy.batch_limit();
  EXPECT_FALSE(server.accepts(500));
  for (int batch = 0; batch < 20; ++batch) server.run(limit - 1);
  EXPECT_GT(server.policy.batch_limit(), limit + 5);
  server.run(server.policy.batch_limit(), milliseconds(30), kNone);
  EXPECT_FALSE(server.accepts(500));
  for (int batch = 0; batch < 20; ++batch) server.run(limit - 1);
  EXPECT_LE(server.policy.batch_limit(), limit + 5) << "it was late, so the pause is longer";
}

TEST(SloPolicy, TellsWhenARequestIsHopelessAtTheLatest) {
  Server server(milliseconds(20));
  const TimePoint begun = server.now;
  const TimePoint at = server.policy.hopeless_at(begun, 1, 4);
  EXPECT_EQ(server.policy.end_of_target(begun), begun + milliseconds(20));
  EXPECT_LT(at, begun + milliseconds(20));
  EXPECT_TRUE(server.policy.hopeless(at, begun, 1, 4));
  EXPECT_FALSE(server.policy.hopeless(at - std::chrono::microseconds(10), begun, 1, 4)) << "no worker is busy";
}

TEST(SloPolicy, ChangesKeepWhatWasLearned) {
  Server server(milliseconds(20));
  server.policy.configure({milliseconds(20), 16, 4});
  EXPECT_EQ(server.policy.batch_limit(), 16U);
  expect_near(server.policy.least_service(), service(1));
  server.policy.configure({Duration::max(), 64, 1});
  EXPECT_TRUE(server.accepts(1'000'000));
}

}  // namespace
}  // namespace service_streamer
