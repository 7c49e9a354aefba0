// What the engine learns from batches that ran out of memory, and the bound of the weight of the queue.

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "batching/engine_groups_testing.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

using Admission = Engine::Admission;

constexpr EngineOptions kGreedy{.batch_size = 32, .policy = PolicyKind::kGreedy, .max_queue = 1'000'000};

Batch cut_at(Engine& engine, std::uint32_t place) {
  CloseReason reason{};
  EXPECT_EQ(engine.poll(reason), Engine::Ready::kBatch);
  Batch batch;
  EndedRequests ended;
  EXPECT_TRUE(engine.cut(batch, reason, ended, {}, place));
  return batch;
}

// The items of the batches of one worker that has memory for `room` items. `failed` counts those that did not fit.
std::vector<std::size_t> run(Engine& engine, std::size_t room, int batches, int& failed) {
  std::vector<std::size_t> sizes;
  const CallPtr call = make_call(1'000'000);
  EXPECT_EQ(submit(engine, call), Admission::kQueued);
  for (int i = 0; i < batches; ++i) {
    Batch batch = cut_at(engine, 0);
    sizes.push_back(batch.items);
    if (batch.items > room) {
      ++failed;
      std::size_t part = batch.items;
      while (part / 2 > room) part /= 2;
      engine.learn(batch.whole, {.failed = part, .passed = part / 2});
      batch.isolated = true;
    }
    answer(engine, batch);
  }
  abandon(engine, *call);
  return sizes;
}

TEST(EngineMemory, BatchesThatDoNotFitAreRareAfterTheFirst) {
  Engine engine(kGreedy);
  int failed = 0;
  const std::vector<std::size_t> sizes = run(engine, 20, 500, failed);
  EXPECT_LE(failed, 2);
  EXPECT_EQ(sizes.back(), 20U);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.counters.out_of_memory, static_cast<std::uint64_t>(failed));
  EXPECT_EQ(stats.memory_limits, (std::map<std::uint64_t, double>{{0, 20}}));
  EXPECT_EQ(stats.batch_limit, 20U);
  EXPECT_GT(stats.counters.close_reasons[static_cast<std::size_t>(CloseReason::kMemory)], 400U);
}

TEST(EngineMemory, TheLimitIsForgottenOnceBatchesOfFullSizeRun) {
  Engine engine(kGreedy);
  int failed = 0;
  run(engine, 20, 100, failed);
  EXPECT_EQ(run(engine, 32, 2'200, failed).back(), 32U);
  EXPECT_TRUE(engine.stats().memory_limits.empty());
  EXPECT_EQ(engine.stats().batch_limit, 32U);
}

TEST(EngineMemory, EachPlaceHasItsOwnLimit) {
  EngineOptions options = kGreedy;
  options.workers = 2;
  Engine engine(options);
  engine.add_place(1);
  const CallPtr call = make_call(200);
  submit(engine, call);
  Batch failed = cut_at(engine, 0);
  engine.learn(failed.whole, {.failed = 32, .passed = 16});
  EXPECT_EQ(engine.stats().batch_limit, 32U) << "at the other place";
  Batch small = cut_at(engine, 0), large = cut_at(engine, 1);
  EXPECT_EQ(small.items, 16U);
  EXPECT_EQ(small.reason, CloseReason::kMemory);
  EXPECT_EQ(large.items, 32U);
  EXPECT_EQ(large.reason, CloseReason::kFull);
  for (Batch* batch : {&failed, &small, &large}) answer(engine, *batch);
  serve_all(engine);
}

TEST(EngineMemory, ThePlacesThatWorkersHaveLeftCountNoMore) {
  EngineOptions options = kGreedy;
  options.workers = 2;
  Engine engine(options);
  engine.add_place(1);
  const CallPtr call = make_call(64);
  submit(engine, call);
  Batch first = cut_at(engine, 0), second = cut_at(engine, 1);
  engine.learn(first.whole, {.failed = 32, .passed = 16});
  for (Batch* batch : {&first, &second}) answer(engine, *batch);
  EXPECT_EQ(engine.stats().batch_limit, 32U);
  engine.set_workers(1);
  EXPECT_EQ(engine.stats().batch_limit, 16U);
}

TEST(EngineMemory, ATargetCountsWithTheLearnedLimit) {
  EngineOptions options = kGreedy;
  options.slo = std::chrono::milliseconds(200);
  const auto accepted = [&options](bool learned) {
    Engine engine(options);
    const CallPtr call = make_call(32);
    submit(engine, call);
    Batch batch = cut_at(engine, 0);
    if (learned) engine.learn(batch.whole, {.failed = 2, .passed = 1});
    pass_time_until(batch.dispatched + options.slo / 4);
    answer(engine, batch);
    int requests = 0;
    while (submit(engine, make_call(1)) == Admission::kQueued && requests < 64) ++requests;
    abort(engine);
    return requests;
  };
  EXPECT_LE(accepted(true), 4) << "batches of one item that takes 50 ms";
  EXPECT_GE(accepted(false), 32);
}

TEST(EngineMemory, WeightsAreLimitedWhereThereAreSomeButNeverASingleItem) {
  Engine engine(weighted(1'000));
  const CallPtr call = submitted_as(engine, {}, {400, 400, 100, 700, 100, 100, 100, 100});
  Batch failed = cut_at(engine, 0);
  EXPECT_EQ(failed.items, 3U);
  EXPECT_EQ(failed.whole.load, 900);
  engine.learn(failed.whole, {.failed = 3, .passed = 1});
  EXPECT_EQ(engine.stats().memory_limits, (std::map<std::uint64_t, double>{{0, 300}}));
  answer(engine, failed);
  std::vector<std::size_t> sizes;
  while (engine.stats().queued_items > 0) {
    Batch batch = cut_at(engine, 0);
    sizes.push_back(batch.items);
    answer(engine, batch);
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 3, 1})) << "700 runs alone";
}

TEST(EngineMemory, AFailureThatTaughtNothingOnlyCounts) {
  Engine engine(kGreedy);
  engine.learn({.items = 32, .load = 32}, {.failed = 2, .passed = 0});
  engine.learn({.items = 32, .load = 0}, {.failed = 32, .passed = 16});  // the items weigh nothing
  EXPECT_EQ(engine.stats().counters.out_of_memory, 2U);
  EXPECT_TRUE(engine.stats().memory_limits.empty());
}

EngineOptions bounded(Overflow overflow) {
  EngineOptions options = weighted(100);
  options.max_queue_weight = 300;
  options.overflow = overflow;
  return options;
}

CallPtr heavy(Weights weights, const Terms& terms = {}) {
  const CallPtr call = make_call(static_cast<std::uint32_t>(weights.size()), terms);
  call->traits = std::make_shared<ItemTraits>(ItemTraits{.keys = {}, .weights = std::move(weights)});
  return call;
}

TEST(EngineQueueWeight, AHeavyRequestIsRefusedAndLearnsWhenToTryAgain) {
  Engine engine(bounded(Overflow::kReject));
  submitted_as(engine, {}, {50, 50});
  serve_all(engine);
  const CallPtr first = submitted_as(engine, {}, {500});
  EXPECT_EQ(engine.stats().queued_weight, 500) << "an empty queue takes any request";
  const CallPtr refused = heavy({1});
  EXPECT_EQ(submit(engine, refused), Admission::kWeightFull);
  const double long_wait = engine.retry_after(*refused);
  EXPECT_GT(long_wait, 0);
  serve_all(engine);
  EXPECT_EQ(engine.stats().queued_weight, 0);
  const CallPtr light = submitted_as(engine, {}, {1});
  EXPECT_LT(engine.retry_after(*refused), long_wait) << "as many items, but lighter ones";
  EXPECT_EQ(engine.stats().counters.rejected, 1U);
  serve_all(engine);
}

TEST(EngineQueueWeight, ARequestWaitsUntilTheWeightBeforeItHasRun) {
  Engine engine(bounded(Overflow::kBlock));
  const CallPtr first = submitted_as(engine, {}, {90, 90, 90});
  const CallPtr waiting = heavy({40});
  EXPECT_EQ(submit(engine, waiting), Admission::kWaiting);
  const CallPtr urgent = heavy({300}, {.priority = 1});
  EXPECT_EQ(submit(engine, urgent), Admission::kQueued) << "lower priorities do not keep it out";
  served(engine);
  EXPECT_EQ(engine.stats().waiting_requests, 1);
  served(engine);
  EXPECT_EQ(engine.stats().queued_weight, 220);
  EXPECT_EQ(engine.stats().waiting_requests, 0);
  abandon(engine, *first);
  EXPECT_EQ(engine.stats().queued_weight, 40);
  serve_all(engine);
  EXPECT_TRUE(waiting->answered());
}

}  // namespace
}  // namespace service_streamer::support
