// Requests that end early, in each of their phases.

#include <gtest/gtest.h>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

constexpr EngineOptions kByFour{.batch_size = 4, .policy = PolicyKind::kGreedy, .max_queue = 8};

TEST(EngineCancel, InTheWaitingRoom) {
  Engine engine(kByFour);
  const CallPtr queued = submitted(engine, 8);
  const CallPtr waiting = make_call(5);
  const CallPtr behind = make_call(3);
  EXPECT_EQ(submit(engine, waiting), Engine::Admission::kWaiting);
  EXPECT_EQ(submit(engine, behind), Engine::Admission::kWaiting);
  Batch batch = take(engine);
  EXPECT_EQ(engine.stats().waiting_requests, 2);
  EXPECT_TRUE(cancel(engine, *waiting));
  EXPECT_TRUE(waiting->ended_as(Outcome::kCancelled));
  EXPECT_TRUE(waiting->released());
  EXPECT_EQ(engine.stats().waiting_requests, 0) << "the request behind it is admitted";
  EXPECT_EQ(engine.stats().queued_items, 7U);
  answer(engine, batch);
  serve_all(engine);
  EXPECT_TRUE(behind->answered());
}

TEST(EngineCancel, InTheQueue) {
  Engine engine(kByFour);
  const CallPtr first = submitted(engine, 1);
  const CallPtr second = submitted(engine, 2);
  const CallPtr third = submitted(engine, 1);
  EXPECT_TRUE(cancel(engine, *second));
  EXPECT_TRUE(second->ended_as(Outcome::kCancelled));
  EXPECT_TRUE(second->released());
  EXPECT_EQ(engine.stats().queued_items, 2U);
  Batch batch = take(engine);
  ASSERT_EQ(batch.ranges.size(), 2U);
  EXPECT_EQ(batch.ranges[1].request, third.get());
  answer(engine, batch);
}

TEST(EngineCancel, PartlyInABatch) {
  Engine engine(kByFour);
  const CallPtr large = submitted(engine, 6);
  Batch batch = take(engine);
  EXPECT_TRUE(cancel(engine, *large)) << "some items are not in a batch yet";
  EXPECT_TRUE(large->ended_as(Outcome::kCancelled));
  EXPECT_FALSE(large->released()) << "the worker still reads it";
  EXPECT_EQ(engine.stats().queued_items, 0U);
  EXPECT_EQ(take(engine).items, 0U);
  answer(engine, batch);
  EXPECT_TRUE(large->released());
  EXPECT_TRUE(large->ended_as(Outcome::kCancelled)) << "the late result changes nothing";
}

TEST(EngineCancel, WhollyInABatchOnlyIfTheCallerAllowsRunningRequests) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 4);
  Batch batch = take(engine);
  EXPECT_FALSE(cancel(engine, *call));
  EXPECT_FALSE(call->done());
  EXPECT_TRUE(abandon(engine, *call));
  EXPECT_TRUE(call->ended_as(Outcome::kCancelled));
  EXPECT_FALSE(call->released());
  answer(engine, batch);
  EXPECT_TRUE(call->released());
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.counters.cancelled, 1U);
  EXPECT_EQ(stats.counters.completed, 0U);
}

TEST(EngineCancel, AfterTheEndChangesNothing) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  serve_all(engine);
  EXPECT_FALSE(cancel(engine, *call));
  EXPECT_FALSE(abandon(engine, *call));
  EXPECT_TRUE(call->answered());
  const CallPtr other = submitted(engine, 1);
  EXPECT_TRUE(cancel(engine, *other));
  EXPECT_FALSE(cancel(engine, *other));
  EXPECT_FALSE(abandon(engine, *other));
  EXPECT_EQ(engine.stats().counters.cancelled, 1U);
}

TEST(EngineCancel, BetweenPollAndCutLeavesTheWorkerWithoutABatch) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  CloseReason reason{};
  ASSERT_EQ(engine.poll(reason), Engine::Ready::kBatch);
  EXPECT_TRUE(cancel(engine, *call));
  const Batch batch = cut(engine, reason);
  EXPECT_EQ(batch.items, 0U);
  EXPECT_EQ(engine.stats().counters.batches, 0U);
  EXPECT_EQ(engine.stats().running_batches, 0);
  const CallPtr next = submitted(engine, 1);
  serve_all(engine);
  EXPECT_TRUE(next->answered()) << "the reservation of the empty batch must be released";
}

TEST(EngineCancel, ARequestInSeveralBatchesIsReleasedByTheLastBatch) {
  Engine engine(kByFour);
  const CallPtr large = submitted(engine, 8);
  Batch first = take(engine);
  Batch second = take(engine);
  EXPECT_TRUE(abandon(engine, *large));
  answer(engine, second);
  EXPECT_FALSE(large->released());
  give_back(engine, first, Outcome::kFailed);
  EXPECT_TRUE(large->released());
  EXPECT_TRUE(large->ended_as(Outcome::kCancelled));
}

TEST(EngineCancel, AThreadThatPublishesAfterTheBatchIsBackReleasesTheRequest) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  Batch batch = take(engine);
  EndedRequests ended;
  EXPECT_TRUE(engine.end_early(*call, Outcome::kCancelled, true, ended));
  answer(engine, batch);  // the batch is back before the end is published
  EXPECT_FALSE(call->done());
  EXPECT_FALSE(call->released());
  publish(ended);
  EXPECT_TRUE(call->ended_as(Outcome::kCancelled));
  EXPECT_TRUE(call->released());
}

TEST(EngineCancel, CountsEachOutcomeUnderItsName) {
  Engine engine(kByFour);
  for (const Outcome outcome : {Outcome::kCancelled, Outcome::kExpired, Outcome::kClosed, Outcome::kFailed}) {
    const CallPtr call = submitted(engine, 1);
    EXPECT_TRUE(end_early(engine, *call, outcome, false));
    EXPECT_TRUE(call->ended_as(outcome));
  }
  const Counters counters = engine.stats().counters;
  EXPECT_EQ(counters.cancelled, 1U);
  EXPECT_EQ(counters.expired, 1U);
  EXPECT_EQ(counters.dropped, 1U);
  EXPECT_EQ(counters.failed, 1U);
  EXPECT_EQ(counters.submitted, 4U);
  EXPECT_EQ(engine.stats().queued_requests, 0);
}

}  // namespace
}  // namespace service_streamer::support
