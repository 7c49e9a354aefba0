// Which buckets of items share a batch.

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <vector>

#include "batching/engine_groups_testing.h"
#include "simulation/random.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

constexpr auto kUnit = std::chrono::minutes(1);  // so long that a pause of this thread does not matter

EngineOptions bucketed() {
  EngineOptions options = kGrouped;
  options.batch_size = 8;
  options.buckets = 3;
  return options;
}

constexpr std::uint64_t kBase = 1 << 6;

// Of an item in the bucket of this number.
std::uint64_t key_of(std::uint64_t bucket, std::uint64_t base = kBase) {
  return base | bucket;
}

// Teaches the engine that a batch takes 10 minutes, and one minute more for each unit of its padded weight.
void teach(Engine& engine) {
  for (int round = 0; round < 60; ++round) {
    const double weight = round % 2 == 0 ? 10 : 40;
    const CallPtr call = submitted_as(engine, {key_of(2)}, {weight});
    Batch batch = take(engine);
    batch.dispatched = Clock::now() - (10 + static_cast<int>(weight)) * kUnit;
    answer(engine, batch);
  }
}

TEST(EngineBuckets, OneJoinsTheBatchOfAnotherIfThatIsFaster) {
  Engine engine(bucketed());
  teach(engine);
  const CallPtr heavy = submitted_as(engine, {key_of(2)}, {4});
  const CallPtr light = submitted_as(engine, {key_of(0)}, {1});
  EXPECT_EQ(served(engine), (Ranges{{heavy.get(), 1}, {light.get(), 1}}));
  teach(engine);
  const CallPtr heavier = submitted_as(engine, {key_of(2)}, {20});
  const CallPtr lightest = submitted_as(engine, {key_of(0)}, {1});
  EXPECT_EQ(served(engine), (Ranges{{heavier.get(), 1}}));
  EXPECT_EQ(served(engine), (Ranges{{lightest.get(), 1}}));
}

TEST(EngineBuckets, OneThatDoesNotFitIsCut) {
  Engine engine(bucketed());
  teach(engine);
  const CallPtr first = submitted_as(engine, {key_of(1), key_of(1), key_of(1)}, {2, 2, 2});
  const CallPtr second = submitted_as(engine, Keys(6, key_of(0)), Weights(6, 2));
  const CallPtr third = submitted_as(engine, Keys(4, key_of(2)), Weights(4, 2));
  EXPECT_EQ(served(engine), (Ranges{{first.get(), 3}, {third.get(), 4}, {second.get(), 1}}));
  EXPECT_EQ(served(engine), (Ranges{{second.get(), 5}}));
}

TEST(EngineBuckets, OtherKeysDoNotShareABatch) {
  Engine engine(bucketed());
  teach(engine);
  const CallPtr one = submitted_as(engine, {key_of(0)}, {1});
  const CallPtr other = submitted_as(engine, {key_of(0, 2 * kBase)}, {1});
  const CallPtr unknown = submitted_as(engine, {key_of(60)}, {1});
  for (const CallPtr& call : {one, other, unknown}) EXPECT_EQ(served(engine), (Ranges{{call.get(), 1}}));
}

TEST(EngineBuckets, ALoneRequestIsCutOnlyWhereThatSavesTime) {
  Engine engine(bucketed());
  teach(engine);
  const CallPtr similar = submitted_as(engine, {key_of(0), key_of(0), key_of(1), key_of(2)}, {1, 1, 2, 3});
  EXPECT_EQ(served(engine), (Ranges{{similar.get(), 4}})) << "one range";
  teach(engine);
  const CallPtr different = submitted_as(engine, {key_of(0), key_of(0), key_of(1), key_of(2)}, {1, 1, 2, 30});
  EXPECT_EQ(served(engine), (Ranges{{different.get(), 3}}));
  EXPECT_EQ(served(engine), (Ranges{{different.get(), 1}}));
  EXPECT_TRUE(similar->answered() && different->answered());
}

TEST(EngineBuckets, TogetherTheyMakeABatchFull) {
  Engine engine(bucketed());
  CloseReason reason{};
  teach(engine);
  engine.configure({.max_latency = std::chrono::hours(1), .policy = PolicyKind::kWindow});
  const CallPtr one = submitted_as(engine, Keys(4, key_of(0)), Weights(4, 1));
  EXPECT_EQ(engine.poll(reason), Engine::Ready::kNotYet);
  const CallPtr other = submitted_as(engine, Keys(4, key_of(1)), Weights(4, 2));
  ASSERT_EQ(engine.poll_ahead(reason), Engine::Ready::kBatch) << "also for a worker that is still busy";
  engine.decline();
  EXPECT_EQ(served(engine), (Ranges{{one.get(), 4}, {other.get(), 4}}));
}

TEST(EngineBuckets, PaddingIsCountedWithoutALimitOfTheWeight) {
  Engine engine(bucketed());
  const CallPtr call = submitted_as(engine, {key_of(0), key_of(0)}, {1, 3});
  serve_all(engine);
  EXPECT_EQ(engine.stats().counters.weight, 4);
  EXPECT_EQ(engine.stats().counters.padded_weight, 6);
}

// Any mix of keys, buckets and priorities, in which batches fail and requests are cancelled.
TEST(EngineBuckets, EveryRequestEndsOnceAndABatchHasItemsOfOneKey) {
  simulation::Random random(7);
  Engine engine(bucketed());
  std::vector<CallPtr> calls;
  std::size_t mixed = 0;
  const auto serve_one = [&] {
    Batch batch = take(engine);
    if (batch.ranges.empty()) return false;
    std::set<std::uint64_t> bases, keys;
    for (const RequestRange& range : batch.ranges) {
      for (std::uint32_t i = range.begin; i < range.begin + range.count; ++i) {
        keys.insert(range.request->key(i));
        bases.insert(range.request->key(i) & ~kBucketBits);
      }
    }
    EXPECT_EQ(bases.size(), 1U);
    EXPECT_LE(batch.items, 8U);
    if (keys.size() > 1) ++mixed;
    batch.dispatched = Clock::now() - 100 * kUnit - static_cast<int>(batch.padded) * kUnit;
    random.between(0, 9) == 0 ? give_back(engine, batch, Outcome::kFailed) : answer(engine, batch);
    return true;
  };
  for (int step = 0; step < 20'000 / kStressShare; ++step) {
    const int choice = random.between(0, 9);
    if (choice < 4) {
      serve_one();
    } else if (choice == 4 && !calls.empty()) {
      cancel(engine, *calls[static_cast<std::size_t>(random.between(0, static_cast<int>(calls.size()) - 1))]);
    } else {
      Keys keys;
      Weights weights;
      const auto base = kBase * static_cast<std::uint64_t>(random.between(1, 3));
      for (std::uint64_t bucket = 0; bucket < 3; ++bucket) {
        for (int item = random.between(0, 4); item > 0; --item) {
          keys.push_back(key_of(bucket, base));
          weights.push_back(random.between(1, 4) * static_cast<int>(bucket + 1));
        }
      }
      if (!keys.empty()) calls.push_back(submitted_as(engine, keys, weights, {.priority = random.between(-1, 1)}));
    }
  }
  while (serve_one()) {
  }
  for (const CallPtr& call : calls) ASSERT_TRUE(call->done());
  EXPECT_GT(mixed, 0U);
  EXPECT_EQ(engine.stats().queued_items, 0U);
}

}  // namespace
}  // namespace service_streamer::support
