// Requests that are put back into the queue to run alone.

#include <gtest/gtest.h>

#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

constexpr EngineOptions kGreedy{.batch_size = 8, .policy = PolicyKind::kGreedy};

// A batch of three requests, which failed and was postponed.
struct Scene {
  Scene() {
    for (int i = 0; i < 3; ++i) calls.push_back(submitted(engine, 2));
    Batch batch = take(engine);
    Batch first;
    engine.split(batch, {.items = 2, .ranges = 1}, first);
    EXPECT_FALSE(postpone(engine, first));
    EXPECT_FALSE(postpone(engine, batch));
  }

  Engine engine{kGreedy};
  std::vector<CallPtr> calls;
};

TEST(EnginePostpone, PostponedRequestsRunOneByOne) {
  Scene scene;
  EXPECT_EQ(scene.engine.stats().running_batches, 0);
  EXPECT_EQ(scene.engine.stats().running_items, 0U);
  EXPECT_EQ(scene.engine.stats().queued_items, 6U);
  EXPECT_EQ(scene.engine.stats().queued_requests, 3);
  for (const CallPtr& call : scene.calls) {
    Batch batch = take(scene.engine);
    ASSERT_EQ(batch.ranges.size(), 1U);
    EXPECT_EQ(batch.ranges[0].request, call.get());
    EXPECT_EQ(batch.items, 2U);
    answer(scene.engine, batch);
    EXPECT_TRUE(call->answered() && call->released());
  }
  EXPECT_EQ(take(scene.engine).items, 0U);
  const Counters counters = scene.engine.stats().counters;
  EXPECT_EQ(counters.batches, 1U) << "the postponed requests were counted before";
  EXPECT_EQ(counters.isolated, 3U);
  EXPECT_EQ(scene.engine.stats().queue_time.count, 3U);
}

TEST(EnginePostpone, EverythingElseGoesFirst) {
  Scene scene;
  const CallPtr other = submitted(scene.engine, 3, {.priority = -100});
  Batch batch = take(scene.engine);
  ASSERT_EQ(batch.ranges.size(), 1U);
  EXPECT_EQ(batch.ranges[0].request, other.get());
  answer(scene.engine, batch);
  for (int i = 0; i < 3; ++i) {
    Batch alone = take(scene.engine);
    EXPECT_EQ(alone.ranges.size(), 1U);
    answer(scene.engine, alone);
  }
}

TEST(EnginePostpone, PostponedRequestsDoNotFillABatch) {
  Engine engine({.batch_size = 2, .max_latency = std::chrono::hours(1), .policy = PolicyKind::kWindow});
  const CallPtr first = submitted(engine, 1);
  const CallPtr second = submitted(engine, 1);
  Batch batch = take(engine);
  EXPECT_FALSE(postpone(engine, batch));
  const CallPtr third = submitted(engine, 1);
  EXPECT_EQ(take(engine).items, 0U) << "the third request waits for a full batch, and the others wait for the third";
  const CallPtr fourth = submitted(engine, 1);
  Batch full = take(engine);
  EXPECT_EQ(full.items, 2U);
  answer(engine, full);
  EXPECT_TRUE(third->answered() && fourth->answered());
  close(engine, false);
}

TEST(EnginePostpone, EachRequestIsReservedForOneWorker) {
  Scene scene;
  CloseReason reason{};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(scene.engine.poll(reason), Engine::Ready::kBatch);
  EXPECT_EQ(scene.engine.poll(reason), Engine::Ready::kNotYet);
  for (int i = 0; i < 3; ++i) {
    Batch batch = cut(scene.engine, reason);
    EXPECT_EQ(batch.ranges.size(), 1U);
    answer(scene.engine, batch);
  }
}

TEST(EnginePostpone, WakesAnIdleWorker) {
  Engine engine(kGreedy);
  const CallPtr first = submitted(engine, 1);
  const CallPtr second = submitted(engine, 1);
  Batch batch = take(engine);
  Batch got;
  std::thread idle([&] {
    Sleeping sleeping;
    CloseReason reason{};
    if (engine.wait_for_batch(sleeping.waiter(), reason) == Engine::Ready::kBatch) got = cut(engine, reason);
  });
  EXPECT_TRUE(eventually([&] { return engine.stats().idle_workers == 1; }));
  EXPECT_FALSE(postpone(engine, batch));
  idle.join();
  EXPECT_EQ(got.items, 1U);
  answer(engine, got);
  Batch last = take(engine);
  answer(engine, last);
}

TEST(EnginePostpone, PostponedRequestsExpire) {
  Scene scene;
  scene.calls[1]->deadline = Clock::now();
  expire(scene.engine);
  EXPECT_TRUE(scene.calls[1]->ended_as(Outcome::kExpired));
  EXPECT_TRUE(scene.calls[1]->released());
  EXPECT_EQ(scene.engine.stats().queued_items, 4U);
  abort(scene.engine);
}

TEST(EnginePostpone, PostponedRequestsCanBeCancelled) {
  Scene scene;
  EXPECT_TRUE(cancel(scene.engine, *scene.calls[0]));
  EXPECT_TRUE(scene.calls[0]->released());
  EXPECT_EQ(scene.engine.stats().queued_requests, 2);
  abort(scene.engine);
}

TEST(EnginePostpone, CloseServesOrEndsPostponedRequests) {
  Scene served;
  close(served.engine, true);
  for (const CallPtr& call : served.calls) {
    Batch batch = take(served.engine);
    answer(served.engine, batch);
    EXPECT_TRUE(call->answered());
  }
  CloseReason reason{};
  EXPECT_EQ(served.engine.poll(reason), Engine::Ready::kClosed);

  Scene dropped;
  close(dropped.engine, false);
  for (const CallPtr& call : dropped.calls) EXPECT_TRUE(call->ended_as(Outcome::kClosed) && call->released());
}

TEST(EnginePostpone, AfterACloseWithoutDrainPostponedRequestsEndAtOnce) {
  Engine engine(kGreedy);
  const CallPtr first = submitted(engine, 1);
  const CallPtr second = submitted(engine, 1);
  Batch batch = take(engine);
  close(engine, false);
  EXPECT_FALSE(postpone(engine, batch));
  EXPECT_TRUE(first->ended_as(Outcome::kClosed) && first->released());
  EXPECT_TRUE(second->ended_as(Outcome::kClosed) && second->released());
}

TEST(EnginePostpone, LeavesPartsOfRequestsInTheBatch) {
  Engine engine(kGreedy);
  const CallPtr small = submitted(engine, 3);
  const CallPtr large = submitted(engine, 10);
  Batch batch = take(engine);
  ASSERT_EQ(batch.items, 8U);
  EXPECT_TRUE(postpone(engine, batch));
  ASSERT_EQ(batch.ranges.size(), 1U);
  EXPECT_EQ(batch.ranges[0].request, large.get());
  EXPECT_EQ(batch.items, 5U);
  answer(engine, batch);
  Batch rest = take(engine);
  EXPECT_EQ(rest.ranges[0].request, large.get());
  answer(engine, rest);
  EXPECT_TRUE(large->answered());
  Batch alone = take(engine);
  answer(engine, alone);
  EXPECT_TRUE(small->answered());
}

TEST(EnginePostpone, ReleasesRequestsThatHaveEnded) {
  Engine engine(kGreedy);
  const CallPtr call = submitted(engine, 1);
  Batch batch = take(engine);
  EXPECT_TRUE(abandon(engine, *call));
  EXPECT_FALSE(postpone(engine, batch));
  EXPECT_TRUE(call->released());
  EXPECT_EQ(engine.stats().queued_requests, 0);
}

}  // namespace
}  // namespace service_streamer::support
