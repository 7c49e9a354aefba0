// Requests that another engine runs: an engine that forwards them, and takes back their outcomes.

#include <gtest/gtest.h>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

using Ready = Engine::Ready;

bool forward(Engine& engine, Batch& batch, std::size_t limit) {
  CloseReason reason{};
  if (engine.poll(reason) != Ready::kBatch) return false;
  EndedRequests expired;
  const bool any = engine.forward(batch, limit, expired);
  publish(expired);
  return any;
}

void take_back(Engine& engine, const CallPtr& call, Outcome outcome) {
  const Engine::Returned returned{.request = call.get(), .outcome = outcome};
  EndedRequests ended;
  ReleasedRequests released;
  engine.take_back({&returned, 1}, ended, released);
  publish(ended);
  let_go(released);
}

TEST(EngineForwarding, ForwardsWholeRequests) {
  Engine engine({.batch_size = 1, .policy = PolicyKind::kGreedy, .max_queue = 100});
  const CallPtr first = submitted(engine, 3);
  const CallPtr large = submitted(engine, 10);
  const CallPtr last = submitted(engine, 1);
  Batch batch;
  ASSERT_TRUE(forward(engine, batch, 4));
  ASSERT_EQ(batch.ranges.size(), 2U) << "regardless of batch_size";
  EXPECT_EQ(batch.ranges[1].count, 10U);
  EXPECT_EQ(batch.items, 13U);
  Batch rest;
  ASSERT_TRUE(forward(engine, rest, 4));
  EXPECT_EQ(rest.ranges.size(), 1U);
  for (const CallPtr& call : {first, large, last}) take_back(engine, call, Outcome::kFailed);
}

TEST(EngineForwarding, RequestsComeBackOneByOneWithTheirOwnOutcome) {
  Engine engine({.batch_size = 8, .policy = PolicyKind::kGreedy});
  const CallPtr answered = submitted(engine, 1);
  const CallPtr failed = submitted(engine, 2);
  const CallPtr abandoned = submitted(engine, 3);
  Batch batch;
  ASSERT_TRUE(forward(engine, batch, 8));
  EXPECT_TRUE(engine.running(*answered));
  EXPECT_TRUE(abandon(engine, *abandoned));
  EXPECT_FALSE(abandoned->released()) << "the other engine still has it";
  take_back(engine, failed, Outcome::kFailed);
  EXPECT_TRUE(failed->ended_as(Outcome::kFailed) && failed->released());
  EXPECT_FALSE(answered->done());
  take_back(engine, abandoned, Outcome::kAnswered);
  EXPECT_TRUE(abandoned->ended_as(Outcome::kCancelled) && abandoned->released());

  close(engine, true);
  Sleeping sleeping;
  EXPECT_EQ(engine.wait_until_drained(sleeping.waiter(), Clock::now()), Completion::Wait::kTimeout);
  take_back(engine, answered, Outcome::kAnswered);
  EXPECT_TRUE(answered->ended_as(Outcome::kAnswered) && answered->released());
  EXPECT_EQ(engine.wait_until_drained(sleeping.waiter(), Clock::now()), Completion::Wait::kDone);
  EXPECT_EQ(engine.stats().running_items, 0U);
  EXPECT_EQ(engine.stats().running_batches, 0);
}

TEST(EngineForwarding, ARequestThatWasNotTakenReturnsToItsOldPlace) {
  Engine engine({.batch_size = 8, .policy = PolicyKind::kGreedy, .max_queue = 6});
  const CallPtr first = submitted(engine, 1);
  const CallPtr second = submitted(engine, 2);
  const CallPtr cancelled = submitted(engine, 1);
  Batch batch;
  ASSERT_TRUE(forward(engine, batch, 8));
  const CallPtr third = submitted(engine, 5);
  EXPECT_TRUE(abandon(engine, *cancelled));
  for (const CallPtr& call : {second, cancelled, first}) take_back(engine, call, Outcome::kNone);
  EXPECT_TRUE(cancelled->ended_as(Outcome::kCancelled) && cancelled->released());
  EXPECT_FALSE(engine.running(*first));
  EXPECT_EQ(engine.stats().queued_items, 8U) << "regardless of max_queue";
  EXPECT_EQ(engine.stats().running_items, 0U);
  ASSERT_TRUE(forward(engine, batch, 8));
  ASSERT_EQ(batch.ranges.size(), 3U);
  EXPECT_EQ(batch.ranges[0].request, first.get());
  EXPECT_EQ(batch.ranges[1].request, second.get());
  EXPECT_EQ(batch.ranges[1].count, 2U);
  EXPECT_EQ(batch.ranges[2].request, third.get());

  close(engine, true);
  take_back(engine, first, Outcome::kNone);
  EXPECT_TRUE(first->ended_as(Outcome::kClosed)) << "no worker will take it";
  for (const CallPtr& call : {second, third}) take_back(engine, call, Outcome::kAnswered);
}

TEST(EngineForwarding, ExpiredRequestsAreNotForwarded) {
  Engine engine({.batch_size = 8, .policy = PolicyKind::kGreedy});
  const CallPtr late = submitted(engine, 1, {.deadline = Clock::now()});
  Batch batch;
  EXPECT_FALSE(forward(engine, batch, 8));
  EXPECT_TRUE(late->ended_as(Outcome::kExpired) && late->released());
}

}  // namespace
}  // namespace service_streamer::support
