// Which groups of requests go before the oldest request, because they are enough for a batch.

#include <gtest/gtest.h>

#include <chrono>

#include "batching/engine_groups_testing.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using Ready = Engine::Ready;

EngineOptions with_latency(Duration max_latency, PolicyKind policy = PolicyKind::kWindow) {
  EngineOptions options = kGrouped;
  options.policy = policy;
  options.max_latency = max_latency;
  return options;
}

// Takes the batch of a worker that is still busy.
Ranges served_ahead(Engine& engine) {
  CloseReason reason{};
  if (engine.poll_ahead(reason) != Ready::kBatch) return {};
  Batch batch = cut(engine, reason);
  Ranges ranges;
  for (const RequestRange& range : batch.ranges) ranges.emplace_back(range.request, range.count);
  answer(engine, batch);
  return ranges;
}

TEST(EngineFullGroups, TheOldestOfThemGoesFirst) {
  Engine engine(with_latency(hours(1)));
  const CallPtr rare = submitted_as(engine, {100});
  std::vector<CallPtr> full;
  for (std::uint64_t key = 0; key < 20; ++key) full.push_back(submitted_as(engine, {key, key, key, key}));
  const CallPtr high = submitted_as(engine, {50, 50, 50, 50}, {}, {.priority = 0});
  for (const CallPtr& call : full) EXPECT_EQ(served(engine), (Ranges{{call.get(), 4}}));
  EXPECT_EQ(served(engine), (Ranges{{high.get(), 4}}));
  close(engine, true);
  EXPECT_EQ(served(engine), (Ranges{{rare.get(), 1}}));
}

TEST(EngineFullGroups, OneOfALowerPriorityDoesNotOvertake) {
  Engine engine(with_latency(hours(1)));
  CloseReason reason{};
  const CallPtr rare = submitted_as(engine, {1});
  const CallPtr bulk = submitted_as(engine, {2, 2, 2, 2}, {}, {.priority = -1});
  EXPECT_EQ(engine.poll(reason), Ready::kNotYet);
  EXPECT_EQ(engine.poll_ahead(reason), Ready::kNotYet);
  close(engine, true);
  EXPECT_EQ(served(engine), (Ranges{{rare.get(), 1}}));
  EXPECT_EQ(served(engine), (Ranges{{bulk.get(), 4}}));
}

TEST(EngineFullGroups, ABusyWorkerTakesOneAheadOnlyWhileTheOldestRequestMayWait) {
  for (const Duration max_latency : {Duration(0), Duration(hours(1))}) {
    Engine engine(with_latency(max_latency));
    const CallPtr rare = submitted_as(engine, {1});
    const CallPtr full = submitted_as(engine, {2, 2, 2, 2});
    EXPECT_EQ(served_ahead(engine), max_latency == Duration(0) ? Ranges{} : (Ranges{{full.get(), 4}}));
    const CallPtr same = submitted_as(engine, {1, 1, 1});
    EXPECT_EQ(served_ahead(engine), (Ranges{{rare.get(), 1}, {same.get(), 3}}));
    close(engine, true);
    served(engine);
  }
}

TEST(EngineFullGroups, AReservedBatchIsNotOneThatMayNoLongerOvertake) {
  Engine engine(with_latency(Duration(0)));
  CloseReason reason{};
  const CallPtr rare = submitted_as(engine, {1});
  const CallPtr full = submitted_as(engine, {2, 2, 2, 2});
  ASSERT_EQ(engine.poll(reason), Ready::kBatch);
  Batch batch = cut(engine, CloseReason::kFull);
  EXPECT_EQ(batch.ranges[0].request, rare.get());
  answer(engine, batch);
  EXPECT_EQ(served(engine), (Ranges{{full.get(), 4}}));
}

// The policy spaces the starts of two workers, and the time starts again with each batch of the second one.
TEST(EngineFullGroups, TheyDoNotOvertakeForEver) {
  EngineOptions options = with_latency(milliseconds(20), PolicyKind::kAdaptive);
  options.workers = 2;
  Engine engine(options);
  const auto serve = [&engine] {
    Batch batch = take(engine);
    if (batch.items == 0) return;
    batch.dispatched = Clock::now() - minutes(1);  // the model is slow
    answer(engine, batch);
  };
  std::vector<CallPtr> calls;
  const auto submit_full_group = [&] { calls.push_back(submitted_as(engine, {1, 1, 1, 1})); };
  for (int i = 0; i < 10; ++i) {
    submit_full_group();
    serve();
  }
  submit_full_group();
  Batch running = take(engine);
  const CallPtr rare = submitted_as(engine, {2});
  EXPECT_TRUE(eventually([&] {
    submit_full_group();
    serve();
    return rare->done();
  }));
  answer(engine, running);
  serve_all(engine);
  abort(engine);
}

TEST(EngineFullGroups, PaddingCountsForWhetherOneIsFull) {
  EngineOptions options = weighted(12, true);
  options.policy = PolicyKind::kWindow;
  options.max_latency = hours(1);
  Engine engine(options);
  CloseReason reason{};
  const CallPtr light = submitted_as(engine, {}, {1, 1});
  const CallPtr heavy = submitted_as(engine, {}, {4});
  ASSERT_EQ(engine.poll(reason), Ready::kBatch) << "three items of 4 each";
  engine.decline();
  cancel(engine, *heavy);
  EXPECT_EQ(engine.poll(reason), Ready::kNotYet);
  const CallPtr again = submitted_as(engine, {}, {4});
  EXPECT_EQ(served(engine), (Ranges{{light.get(), 2}, {again.get(), 1}}));
}

TEST(EngineFullGroups, AnEnormousWeightLeavesNoTrace) {
  EngineOptions options = weighted(10);
  options.policy = PolicyKind::kWindow;
  options.max_latency = hours(1);
  Engine engine(options);
  CloseReason reason{};
  const CallPtr light = submitted_as(engine, {}, {1});
  const CallPtr enormous = submitted_as(engine, {}, {1e308, 1e308});
  cancel(engine, *enormous);
  EXPECT_EQ(engine.poll(reason), Ready::kNotYet);
  const CallPtr more = submitted_as(engine, {}, {9});
  EXPECT_EQ(served(engine), (Ranges{{light.get(), 1}, {more.get(), 1}}));
}

}  // namespace
}  // namespace service_streamer::support
