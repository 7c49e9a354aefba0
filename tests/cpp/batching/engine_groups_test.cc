// Requests with keys and weights: which items share a batch, and which batch goes first.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "batching/engine_groups_testing.h"
#include "simulation/random.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::hours;
using Ready = Engine::Ready;

TEST(EngineGroups, OnlyItemsWithEqualKeysShareABatchAndTheOldestRequestGoesFirst) {
  Engine engine(kGrouped);
  const CallPtr a1 = submitted_as(engine, {1});
  const CallPtr b1 = submitted_as(engine, {2});
  const CallPtr a2 = submitted_as(engine, {1, 1});
  const CallPtr b2 = submitted_as(engine, {2});
  EXPECT_EQ(served(engine), (Ranges{{a1.get(), 1}, {a2.get(), 2}}));
  const CallPtr a3 = submitted_as(engine, {1});
  EXPECT_EQ(served(engine), (Ranges{{b1.get(), 1}, {b2.get(), 1}}));
  EXPECT_EQ(served(engine), (Ranges{{a3.get(), 1}}));
}

TEST(EngineGroups, ARequestWithSeveralKeysIsCutBetweenThem) {
  Engine engine(kGrouped);
  const CallPtr mixed = submitted_as(engine, {1, 1, 2, 3});
  const CallPtr two = submitted_as(engine, {2});
  const CallPtr one = submitted_as(engine, {1});
  EXPECT_EQ(served(engine), (Ranges{{mixed.get(), 2}, {one.get(), 1}}));
  EXPECT_EQ(served(engine), (Ranges{{mixed.get(), 1}, {two.get(), 1}})) << "it keeps its place in front of `two`";
  EXPECT_EQ(served(engine), (Ranges{{mixed.get(), 1}}));
  EXPECT_TRUE(mixed->answered());
}

TEST(EngineGroups, AHigherPriorityGoesFirstAndTakesItsKeyAlong) {
  Engine engine(kGrouped);
  const CallPtr other = submitted_as(engine, {2});
  const CallPtr low = submitted_as(engine, {1});
  const CallPtr high = submitted_as(engine, {1}, {}, {.priority = 1});
  EXPECT_EQ(served(engine), (Ranges{{high.get(), 1}, {low.get(), 1}}));
  EXPECT_EQ(served(engine), (Ranges{{other.get(), 1}}));
}

TEST(EngineGroups, AFullGroupDoesNotWaitForTheOldestRequest) {
  EngineOptions options = kGrouped;
  options.policy = PolicyKind::kWindow;
  options.max_latency = hours(1);
  Engine engine(options);
  CloseReason reason{};
  const CallPtr rare = submitted_as(engine, {1});
  const CallPtr some = submitted_as(engine, {2, 2, 2});
  EXPECT_EQ(engine.poll(reason), Ready::kNotYet);
  const CallPtr last = submitted_as(engine, {2});
  EXPECT_EQ(served(engine), (Ranges{{some.get(), 3}, {last.get(), 1}}));
  EXPECT_EQ(engine.poll(reason), Ready::kNotYet);
  close(engine, true);
  EXPECT_EQ(served(engine), (Ranges{{rare.get(), 1}}));
}

TEST(EngineGroups, AnIdleWorkerIsWokenForEachGroup) {
  Engine engine(kGrouped);
  CloseReason reason{};
  TimePoint until;
  Sleeping one, two;
  Engine::IdleWorker first(one.waiter()), second(two.waiter());
  ASSERT_EQ(engine.start_waiting(first, reason, until), Ready::kNotYet);
  ASSERT_EQ(engine.start_waiting(second, reason, until), Ready::kNotYet);
  const CallPtr a = submitted_as(engine, {1});
  const CallPtr b = submitted_as(engine, {2});
  std::vector<Batch> batches;
  for (Engine::IdleWorker* worker : {&second, &first}) {  // the most recently idle one is woken first
    ASSERT_EQ(engine.start_waiting(*worker, reason, until), Ready::kBatch);
    batches.push_back(cut(engine, reason));
  }
  for (Batch& batch : batches) answer(engine, batch);
  EXPECT_TRUE(a->answered() && b->answered());
}

TEST(EngineGroups, ABatchHoldsAtMostTheMaximumWeight) {
  Engine engine(weighted(10));
  const CallPtr first = submitted_as(engine, {}, {4, 5});
  const CallPtr second = submitted_as(engine, {}, {2, 1, 1, 1, 1});
  CloseReason reason{};
  Batch batch = take(engine);
  EXPECT_EQ(batch.items, 2U);
  EXPECT_EQ(batch.reason, CloseReason::kFull);
  answer(engine, batch);
  EXPECT_EQ(served(engine), (Ranges{{second.get(), 4}})) << "batch_size still holds";
  EXPECT_EQ(served(engine), (Ranges{{second.get(), 1}}));
  EXPECT_EQ(engine.poll(reason), Ready::kNotYet);
}

TEST(EngineGroups, WithPaddingTheHeaviestItemCountsForAll) {
  Engine engine(weighted(10, true));
  const CallPtr call = submitted_as(engine, {}, {3, 1, 1, 5, 5});
  EXPECT_EQ(served(engine), (Ranges{{call.get(), 3}}));
  EXPECT_EQ(served(engine), (Ranges{{call.get(), 2}}));
}

TEST(EngineGroups, PaddingAndBatchesThatOtherKeysKeptSmallAreCounted) {
  Engine engine(weighted(10, true));
  const CallPtr full = submitted_as(engine, {1, 1}, {5, 3});
  const CallPtr small = submitted_as(engine, {2}, {4});
  const CallPtr last = submitted_as(engine, {3}, {2});
  serve_all(engine);
  const EventCounts counts = engine.stats().counters;
  EXPECT_EQ(counts.weight, 14);
  EXPECT_EQ(counts.padded_weight, 16);
  EXPECT_EQ(counts.other_keys, 1U) << "the second batch: the first is full, and the last leaves none";
  const EventCounts none = counts - counts;
  EXPECT_EQ(none.padded_weight, 0);
}

TEST(EngineGroups, AnItemThatIsTooHeavyRunsAlone) {
  for (const bool padded : {false, true}) {
    Engine engine(weighted(10, padded));
    const CallPtr light = submitted_as(engine, {}, {1});
    const CallPtr heavy = submitted_as(engine, {}, {11, 1});
    EXPECT_EQ(served(engine), (Ranges{{light.get(), 1}}));
    EXPECT_EQ(served(engine), (Ranges{{heavy.get(), 1}}));
    EXPECT_EQ(served(engine), (Ranges{{heavy.get(), 1}}));
  }
}

TEST(EngineGroups, ExpiredAndCancelledRequestsLeaveTheirGroups) {
  Engine engine(kGrouped);
  const CallPtr expired = submitted_as(engine, {1}, {}, {.deadline = TimePoint{}});
  const CallPtr cancelled = submitted_as(engine, {2, 2, 2, 2});
  const CallPtr left = submitted_as(engine, {3});
  cancel(engine, *cancelled);
  EXPECT_EQ(served(engine), (Ranges{{left.get(), 1}}));
  EXPECT_TRUE(expired->ended_as(Outcome::kExpired));
  EXPECT_TRUE(cancelled->ended_as(Outcome::kCancelled));
}

// Any mix: every item is answered once, a batch has one key and is not too heavy, and requests of one priority that
// begin with the same key go in order.
TEST(EngineGroups, HoldsForAnyMix) {
  for (const bool padded : {false, true}) {
    simulation::Random random(5);
    Engine engine(weighted(12, padded));
    std::vector<CallPtr> calls;
    std::map<std::pair<std::uint64_t, int>, std::size_t> last;  // of each key and priority: the latest request served
    std::map<const Request*, std::size_t> number;
    const auto serve_one = [&] {
      Batch batch = take(engine);
      if (batch.ranges.empty()) return false;
      const std::uint64_t key = batch.ranges[0].request->key(batch.ranges[0].begin);
      double sum = 0, heaviest = 0;
      for (const RequestRange& range : batch.ranges) {
        for (std::uint32_t i = range.begin; i < range.begin + range.count; ++i) {
          EXPECT_EQ(range.request->key(i), key);
          sum += range.request->weight(i);
          heaviest = std::max(heaviest, range.request->weight(i));
        }
        if (range.begin > 0) continue;  // these items could not be next before
        std::size_t& before = last[{key, range.request->priority}];
        EXPECT_GE(number[range.request], before);
        before = number[range.request];
      }
      const double weight = padded ? static_cast<double>(batch.items) * heaviest : sum;
      EXPECT_TRUE(weight <= 12 || batch.items == 1) << weight;
      EXPECT_LE(batch.items, 4U);
      answer(engine, batch);
      return true;
    };
    for (int step = 0; step < 20'000 / kStressShare; ++step) {
      if (random.between(0, 2) == 0) {
        serve_one();
        continue;
      }
      Keys keys;
      Weights weights;
      for (int run = random.between(1, 3); run > 0; --run) {
        const auto key = static_cast<std::uint64_t>(10 * run + random.between(0, 3));
        for (int item = random.between(1, 5); item > 0; --item) {
          keys.push_back(key);
          weights.push_back(random.between(0, 14));
        }
      }
      calls.push_back(submitted_as(engine, keys, weights, {.priority = random.between(-1, 1)}));
      number[calls.back().get()] = calls.size();
    }
    while (serve_one()) {
    }
    for (const CallPtr& call : calls) ASSERT_TRUE(call->answered());
    EXPECT_EQ(engine.stats().queued_items, 0U);
  }
}

}  // namespace
}  // namespace service_streamer::support
