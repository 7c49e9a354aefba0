#include "service_streamer/batching/bucket_policy.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace service_streamer {
namespace {

using std::chrono::milliseconds;
using Companies = std::vector<BucketPolicy::Company>;

constexpr BatchLimits kLimits{.items = 8};

BucketPolicy::Company bucket(std::size_t items, double weight) {
  return {.items = items,
          .requests = static_cast<int>(items),
          .sum = static_cast<double>(items) * weight,
          .heaviest = weight};
}

// A policy that has learned batches of 10 ms and 1 ms more for each unit of the padded weight.
BucketPolicy taught() {
  BucketPolicy policy;
  TimePoint now;
  for (int round = 0; round < 100; ++round) {
    const int weight = round % 2 == 0 ? 10 : 40;
    const TimePoint start = now;
    now += milliseconds(10 + weight);
    policy.completed(now, start, false, weight);
  }
  return policy;
}

std::uint64_t joining(const BucketPolicy& policy, const Companies& buckets, std::size_t first,
                      const BatchLimits& limits = kLimits) {
  return policy.plan(buckets, first, limits).joining;
}

TEST(BucketPolicy, ABucketJoinsIfTheBatchThenTakesLittleLongerThanOneOfThatBucket) {
  const BucketPolicy policy = taught();
  EXPECT_EQ(joining(policy, {bucket(1, 1), bucket(1, 4)}, 1), 1u) << "7 ms longer";
  EXPECT_EQ(joining(policy, {bucket(2, 1), bucket(1, 5)}, 1), 0u) << "13 ms";
  EXPECT_EQ(joining(policy, {bucket(1, 1), bucket(1, 8)}, 0), 2u) << "8 ms";
  EXPECT_EQ(joining(policy, {bucket(1, 1), bucket(1, 13)}, 0), 0u) << "13 ms";
}

TEST(BucketPolicy, ForOneRequestOnlyThePaddingCounts) {
  const BucketPolicy policy = taught();
  Companies buckets = {bucket(1, 1), bucket(1, 8)};
  EXPECT_EQ(joining(policy, buckets, 1), 0u);
  buckets[1].requests = 0;
  EXPECT_EQ(joining(policy, buckets, 1), 1u);
}

TEST(BucketPolicy, TheBucketThatSavesMostJoinsFirst) {
  const BucketPolicy policy = taught();
  EXPECT_EQ(joining(policy, {bucket(4, 0.8), bucket(4, 1), bucket(4, 1.2)}, 2), 2u) << "only one of them fits";
  EXPECT_EQ(joining(policy, {bucket(4, 1), bucket(2, 1), bucket(4, 1.2)}, 2), 2u) << "less padding";
}

TEST(BucketPolicy, APartOfABucketFillsTheBatchIfItsPaddingCostsLessThanItsShareOfABatch) {
  const BucketPolicy policy = taught();
  const BucketPolicy::Plan plan = policy.plan(Companies{bucket(3, 1), bucket(6, 1.5)}, 1, kLimits);
  EXPECT_EQ(plan.joining, 0u);
  EXPECT_EQ(plan.partly, 1u) << "padding of 2 times 0.5 ms, a quarter of a batch";
  EXPECT_TRUE(plan.company.full);
  EXPECT_EQ(policy.plan(Companies{bucket(3, 1), bucket(6, 2.5)}, 1, kLimits).partly, 0u);
  EXPECT_EQ(policy.plan(Companies{bucket(2, 1), bucket(6, 1)}, 1, kLimits).partly, 0u) << "all of it fits";
}

TEST(BucketPolicy, AFullBucketJoinsOnlyAsAPart) {
  const BucketPolicy policy = taught();
  BucketPolicy::Company full = bucket(9, 1);
  full.full = true;
  const BucketPolicy::Plan plan = policy.plan(Companies{bucket(2, 1), full, bucket(2, 1)}, 0, kLimits);
  EXPECT_EQ(plan.joining, 4u);
  EXPECT_EQ(plan.partly, 2u);
  EXPECT_EQ(plan.company.items, 8u);
}

TEST(BucketPolicy, ABatchKeepsTheLimitOfTheWeight) {
  const BucketPolicy policy = taught();
  const Companies buckets = {bucket(1, 1), bucket(2, 3)};
  EXPECT_EQ(joining(policy, buckets, 1, {.items = 8, .weight = 7}), 1u);
  EXPECT_EQ(joining(policy, buckets, 1, {.items = 8, .weight = 6.5}), 0u);
  EXPECT_EQ(joining(policy, buckets, 1, {.items = 8, .weight = 9, .padded = true}), 1u);
  EXPECT_EQ(joining(policy, buckets, 1, {.items = 8, .weight = 8.5, .padded = true}), 0u);
}

TEST(BucketPolicy, ThePlanHasAllThatCanBeInTheBatch) {
  const BucketPolicy::Plan plan = taught().plan(Companies{bucket(3, 1), bucket(0, 0), bucket(5, 2)}, 0, kLimits);
  EXPECT_EQ(plan.joining, 4u);
  EXPECT_EQ(plan.company.items, 8u);
  EXPECT_EQ(plan.company.requests, 8);
  EXPECT_TRUE(plan.company.full);
  EXPECT_EQ(plan.company.heaviest, 2);
}

TEST(BucketPolicy, BeforeTheFirstBatchNothingJoins) {
  EXPECT_EQ(joining(BucketPolicy(), {bucket(1, 1), bucket(1, 1)}, 0), 0u);
}

TEST(BucketPolicy, ABatchThatWaitedForTheOneBeforeItCountsFromThere) {
  BucketPolicy policy;
  TimePoint now;
  for (int round = 0; round < 100; ++round) {
    const int weight = round % 2 == 0 ? 10 : 40;
    now += milliseconds(10 + weight);
    policy.completed(now, now - std::chrono::hours(1), round > 0, weight);
  }
  EXPECT_EQ(joining(policy, {bucket(1, 1), bucket(1, 13)}, 0), 0u);
}

}  // namespace
}  // namespace service_streamer
