// The path of a request through the engine, without threads: each test is both caller and worker.

#include "service_streamer/batching/engine.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using Ready = Engine::Ready;

constexpr EngineOptions kGreedyByFour{.batch_size = 4, .policy = PolicyKind::kGreedy};

std::vector<Request*> requests_of(const Batch& batch) {
  std::vector<Request*> requests;
  for (const RequestRange& range : batch.ranges) requests.push_back(range.request);
  return requests;
}

std::uint64_t closed_by(const Engine& engine, CloseReason reason) {
  return engine.stats().counters.close_reasons[static_cast<std::size_t>(reason)];
}

TEST(Engine, AnswersARequest) {
  Engine engine({});
  const CallPtr call = submitted(engine, 3);
  EXPECT_FALSE(call->done());
  Batch batch = take(engine);
  EXPECT_EQ(batch.items, 3U);
  EXPECT_EQ(batch.finishing, 1);
  answer(engine, batch);
  EXPECT_TRUE(call->answered());
  EXPECT_TRUE(call->released());
  EXPECT_TRUE(batch.ranges.empty()) << "a batch that was given back is empty";
}

TEST(Engine, ARequestOfAPriorityAboveZeroDoesNotWaitForOthers) {
  Engine engine({.batch_size = 4, .max_latency = hours(1), .policy = PolicyKind::kWindow});
  const CallPtr normal = submitted(engine, 1);
  const CallPtr low = submitted(engine, 1, {.priority = -1});
  EXPECT_EQ(take(engine).items, 0U);
  const CallPtr high = submitted(engine, 1, {.priority = 1});
  Batch batch = take(engine);
  EXPECT_EQ(batch.reason, CloseReason::kPriority);
  EXPECT_EQ(batch.items, 3U) << "other requests fill the batch";
  answer(engine, batch);
}

TEST(Engine, ABatchHasAtMostBatchSizeItems) {
  Engine engine(kGreedyByFour);
  std::vector<CallPtr> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(submitted(engine, 3));
  std::vector<std::size_t> sizes;
  for (Batch batch = take(engine); batch.items > 0; batch = take(engine)) {
    sizes.push_back(batch.items);
    EXPECT_EQ(batch.reason, batch.items == 4 ? CloseReason::kFull : CloseReason::kIdle);
    answer(engine, batch);
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4, 4, 1}));
  for (const CallPtr& call : calls) EXPECT_TRUE(call->answered());
}

TEST(Engine, ABatchGrowsUntilItIsCut) {
  Engine engine(kGreedyByFour);
  const CallPtr first = submitted(engine, 1);
  CloseReason reason{};
  ASSERT_EQ(engine.poll(reason), Ready::kBatch);
  const CallPtr second = submitted(engine, 2);
  CloseReason other{};
  EXPECT_EQ(engine.poll(other), Ready::kNotYet) << "all queued items are reserved";
  const CallPtr third = submitted(engine, 2);
  EXPECT_EQ(engine.poll(other), Ready::kBatch) << "more items than one batch can have";
  Batch batch = cut(engine, reason);
  EXPECT_EQ(batch.items, 4U);
  Batch rest = cut(engine, other);
  EXPECT_EQ(rest.items, 1U);
  answer(engine, rest);
  answer(engine, batch);
  EXPECT_TRUE(third->answered());
}

TEST(Engine, ALargeRequestIsCutAndItsResultsAreInOrderInWhateverOrderBatchesComeBack) {
  std::vector<std::size_t> order{0, 1, 2, 3};
  do {
    Engine engine(kGreedyByFour);
    const CallPtr before = submitted(engine, 2);
    const CallPtr large = submitted(engine, 10);
    const CallPtr after = submitted(engine, 3);
    std::vector<Batch> batches;
    for (int i = 0; i < 4; ++i) batches.push_back(take(engine));
    EXPECT_EQ(std::accumulate(batches.begin(), batches.end(), 0,
                              [](int sum, const Batch& batch) { return sum + batch.finishing; }),
              3);
    std::size_t left = 3;  // batches with a part of the large request
    for (const std::size_t i : order) {
      if (i != 3) --left;
      answer(engine, batches[i]);
      ASSERT_EQ(large->done(), left == 0);
    }
    EXPECT_TRUE(before->answered() && large->answered() && after->answered());
    EXPECT_TRUE(large->released());
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Engine, OneFailedPartEndsTheWholeRequestAndTakesItsRestOutOfTheQueue) {
  Engine engine(kGreedyByFour);
  const CallPtr large = submitted(engine, 11);
  const CallPtr after = submitted(engine, 1);
  Batch first = take(engine);
  Batch second = take(engine);
  give_back(engine, second, Outcome::kFailed);
  EXPECT_TRUE(large->ended_as(Outcome::kFailed));
  EXPECT_FALSE(large->released()) << "the first batch still has a part of it";
  EXPECT_EQ(engine.stats().queued_items, 1U);
  Batch next = take(engine);
  EXPECT_EQ(requests_of(next), (std::vector<Request*>{after.get()}));
  answer(engine, first);
  EXPECT_TRUE(large->ended_as(Outcome::kFailed));
  EXPECT_TRUE(large->released());
  answer(engine, next);
  EXPECT_EQ(engine.stats().counters.failed, 1U);
  EXPECT_EQ(engine.stats().counters.completed, 1U);
}

TEST(Engine, AFailedOutputFailsItsOwnRequestOnly) {
  Engine engine(kGreedyByFour);
  const CallPtr good = submitted(engine, 1);
  const CallPtr bad = submitted(engine, 2);
  const CallPtr also_good = submitted(engine, 1);
  Batch batch = take(engine);
  batch.ranges[1].failed = true;
  answer(engine, batch);
  EXPECT_TRUE(good->answered());
  EXPECT_TRUE(bad->ended_as(Outcome::kFailed));
  EXPECT_TRUE(also_good->answered());
}

TEST(Engine, AFailedOrLostBatchEndsAllItsRequests) {
  for (const Outcome outcome : {Outcome::kFailed, Outcome::kLost}) {
    Engine engine(kGreedyByFour);
    const CallPtr first = submitted(engine, 1);
    const CallPtr second = submitted(engine, 2);
    const CallPtr waits = submitted(engine, 4);
    Batch batch = take(engine);  // has one item of the third request
    give_back(engine, batch, outcome);
    for (const CallPtr& call : {first, second, waits}) {
      EXPECT_TRUE(call->ended_as(outcome));
      EXPECT_TRUE(call->released());
    }
    const EngineStats stats = engine.stats();
    EXPECT_EQ(stats.counters.failed, 3U);
    EXPECT_EQ(stats.queued_items, 0U);
    EXPECT_EQ(stats.running_items, 0U);
    EXPECT_EQ(stats.running_batches, 0);
  }
}

TEST(Engine, TellsWhetherARequestIsRunning) {
  Engine engine(kGreedyByFour);
  const CallPtr large = submitted(engine, 6);
  const CallPtr small = submitted(engine, 1);
  EXPECT_FALSE(engine.running(*large));
  Batch batch = take(engine);
  EXPECT_TRUE(engine.running(*large));
  EXPECT_FALSE(engine.running(*small));
  answer(engine, batch);
  EXPECT_TRUE(engine.running(*large)) << "the rest is still queued";
  serve_all(engine);
  EXPECT_FALSE(engine.running(*large));
}

TEST(Engine, AWindowDelaysABatchUntilItIsFullOrTheWindowEnds) {
  Engine engine({.batch_size = 4, .max_latency = hours(1), .policy = PolicyKind::kWindow});
  const CallPtr first = submitted(engine, 3);
  EXPECT_EQ(take(engine).items, 0U);
  const CallPtr second = submitted(engine, 1);
  Batch full = take(engine);
  EXPECT_EQ(full.reason, CloseReason::kFull);
  answer(engine, full);
  const CallPtr third = submitted(engine, 1);
  EXPECT_EQ(take(engine).items, 0U);
  engine.configure({.max_latency = milliseconds(1)});
  pass_time_until(third->arrived + milliseconds(1));
  Batch late = take(engine);
  EXPECT_EQ(late.reason, CloseReason::kWindow);
  EXPECT_GE(late.age, milliseconds(1));
  answer(engine, late);
}

TEST(Engine, ConfigureChangesTheNextBatch) {
  Engine engine({.batch_size = 4, .max_latency = hours(1), .policy = PolicyKind::kWindow});
  const CallPtr call = submitted(engine, 3);
  EXPECT_EQ(take(engine).items, 0U);
  engine.configure({.batch_size = 2, .policy = PolicyKind::kGreedy});
  Batch batch = take(engine);
  EXPECT_EQ(batch.items, 2U);
  EXPECT_EQ(batch.reason, CloseReason::kFull);
  answer(engine, batch);
  serve_all(engine);
  EXPECT_EQ(closed_by(engine, CloseReason::kIdle), 1U);
}

// The policy spaces the batches of two slow workers, but delays no request for longer than max_latency.
TEST(Engine, TheWaitOfACancelledRequestDoesNotCountForTheNextOne) {
  constexpr auto kHold = milliseconds(20);
  Engine engine({.batch_size = 8, .max_latency = hours(1), .workers = 2});
  const CallPtr slow = submitted(engine, 1);
  Batch batch = take(engine);
  batch.dispatched -= hours(1);
  answer(engine, batch);
  const CallPtr running = submitted(engine, 8);
  batch = take(engine);
  const CallPtr cancelled = submitted(engine, 1);
  EXPECT_EQ(take(engine).items, 0U);
  EXPECT_TRUE(cancel(engine, *cancelled));
  engine.configure({.max_latency = kHold});
  pass_time_until(cancelled->ended + kHold);
  const CallPtr fresh = submitted(engine, 1);
  EXPECT_TRUE(eventually([&] {
    Batch next = take(engine);
    if (next.items == 0) return false;
    EXPECT_GE(next.age, kHold) << "its wait counts from its own arrival";
    answer(engine, next);
    return true;
  }));
  answer(engine, batch);
}

TEST(Engine, EstimatesWhenAFullQueueHasRoom) {
  Engine engine({.batch_size = 2, .policy = PolicyKind::kGreedy, .workers = 2});
  const CallPtr refused = make_call(1);
  EXPECT_EQ(engine.retry_after(*refused), 0.1) << "max_latency, before the model has run";
  const CallPtr first = submitted(engine, 2);
  Batch batch = take(engine);
  pass_time_until(batch.dispatched + milliseconds(2));
  answer(engine, batch);
  EXPECT_EQ(engine.retry_after(*refused), 0.0) << "the queue is empty";
  const CallPtr backlog = submitted(engine, 12);
  const double service = std::chrono::duration<double>(engine.stats().service_time.max).count();
  EXPECT_GE(service, 0.002);
  EXPECT_NEAR(engine.retry_after(*refused), 6 * service / 2, 1e-9);
  serve_all(engine);
}

}  // namespace
}  // namespace service_streamer::support
