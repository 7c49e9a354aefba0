// Batches for whose list of requests there is no memory: they are cut later or smaller, and no request is lost.

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <vector>

#include "support/native.h"
#include "support/no_memory.h"

namespace service_streamer::support {
namespace {

constexpr std::size_t kFirstRanges = 64;  // cut() allocates memory for this many before it takes the first
constexpr std::size_t kFirst = kFirstRanges * sizeof(RequestRange);

constexpr EngineOptions kLarge{.batch_size = 200, .policy = PolicyKind::kGreedy};

std::vector<CallPtr> submitted_together(Engine& engine, std::size_t calls) {
  std::vector<CallPtr> all;
  for (std::size_t i = 0; i < calls; ++i) all.push_back(submitted(engine, 1));
  return all;
}

TEST(EngineWithoutMemory, ABatchThatCannotBeCutIsDueAgain) {
  Engine engine(kLarge);
  const auto calls = submitted_together(engine, 3);
  CloseReason reason{};
  ASSERT_EQ(engine.poll(reason), Engine::Ready::kBatch);
  {
    const NoMemoryFor list(kFirst, kFirst + 1);
    Batch batch;
    EndedRequests expired;
    EXPECT_THROW(engine.cut(batch, reason, expired), std::bad_alloc);
    EXPECT_EQ(expired.count, 0U);
  }
  serve_all(engine);
  for (const CallPtr& call : calls) EXPECT_TRUE(call->answered());
  EXPECT_EQ(engine.stats().counters.batches, 1U);
}

TEST(EngineWithoutMemory, ABatchThatCannotBeCutGoesToAnotherWorker) {
  Engine engine(kLarge);
  const CallPtr call = submitted(engine, 1);
  CloseReason reason{};
  ASSERT_EQ(engine.poll(reason), Engine::Ready::kBatch);
  Sleeping sleeping;
  Engine::IdleWorker other(sleeping.waiter());
  TimePoint until;
  ASSERT_EQ(engine.start_waiting(other, reason, until), Engine::Ready::kNotYet) << "it is promised to the first";
  {
    const NoMemoryFor list(kFirst, kFirst + 1);
    Batch batch;
    EndedRequests expired;
    EXPECT_THROW(engine.cut(batch, reason, expired), std::bad_alloc);
  }
  EXPECT_EQ(sleeping.waiter().parker.park(Clock::now()), Parker::Wake::kUnparked);
  ASSERT_EQ(engine.start_waiting(other, reason, until), Engine::Ready::kBatch);
  Batch batch = cut(engine, reason);
  answer(engine, batch);
  EXPECT_TRUE(call->answered());
}

TEST(EngineWithoutMemory, ABatchHasAsManyRequestsAsThereIsMemoryFor) {
  Engine engine(kLarge);
  const auto calls = submitted_together(engine, 100);
  {
    const NoMemoryFor longer_list(2 * kFirst, 2 * kFirst + 1);
    Batch batch = take(engine);
    EXPECT_GT(longer_list.felt(), 0);
    EXPECT_EQ(batch.items, kFirstRanges);
    answer(engine, batch);
  }
  EXPECT_EQ(engine.stats().queued_items, 100 - kFirstRanges);
  serve_all(engine);
  for (const CallPtr& call : calls) EXPECT_TRUE(call->answered());
  EXPECT_EQ(engine.stats().counters.batches, 2U);
  EXPECT_EQ(engine.stats().running_batches, 0);
}

TEST(EngineWithoutMemory, ANativeWorkerRecoversFromALackOfMemory) {
  NativeServing serving(std::make_shared<IntModel>(), {}, kLarge);
  const NativeRequest first = serving.sent({1});
  const NativeRequest second = serving.sent({2});
  {
    const NoMemoryFor list(kFirst, kFirst + 1);
    serving.start();
    EXPECT_TRUE(eventually([&] { return list.felt() > 1; }));
    EXPECT_FALSE(first.done());
  }
  EXPECT_TRUE(first.answered());
  EXPECT_TRUE(second.answered());
}

}  // namespace
}  // namespace service_streamer::support
