// How many of the queued items a worker takes: all, or a share if the fixed cost of a batch is small beside its items.

#include "batching/batch_policy_testing.h"

namespace service_streamer::policy_tests {
namespace {

// Completes batches of different sizes until the policy has learned their cost.
void teach_cost(BatchPolicy& policy, Duration fixed, Duration per_item, int small = 4, int large = 24) {
  TimePoint now = kStart;
  for (int round = 0; round < 100; ++round) {
    const int items = round % 2 == 0 ? small : large;
    now = run_batch(policy, now, items, fixed + items * per_item) + hours(1);
  }
}

BatchPolicy taught(int workers, Duration fixed, Duration per_item) {
  BatchPolicy policy(adaptive(workers));
  teach_cost(policy, fixed, per_item);
  return policy;
}

TEST(BatchPolicyShare, WithoutAFixedCostAWorkerTakesHalf) {
  const BatchPolicy policy = taught(1, microseconds(50), milliseconds(1));
  EXPECT_EQ(policy.share(waiting(32, kStart)), 16u);
  EXPECT_EQ(policy.share(waiting(33, kStart)), 17u);
  EXPECT_EQ(policy.share(waiting(63, kStart)), 32u);
}

TEST(BatchPolicyShare, IdleWorkersGetEqualShares) {
  const BatchPolicy policy = taught(4, microseconds(50), milliseconds(1));
  EXPECT_EQ(policy.share(waiting(32, kStart, 4)), 8u);
  EXPECT_EQ(policy.share(waiting(24, kStart, 3)), 8u);
  EXPECT_EQ(policy.share(waiting(16, kStart, 1)), 8u);
  EXPECT_EQ(policy.share({32, 1, 4, kStart, kStart}), 8u) << "also if it is one request";
}

TEST(BatchPolicyShare, TheFixedCostOfAShareIsATwentiethAtMost) {
  const BatchPolicy policy = taught(1, microseconds(250), milliseconds(1));
  EXPECT_EQ(policy.share(waiting(6, kStart)), 5u);
  EXPECT_GE(policy.share(waiting(4, kStart)), 4u);
  // At least a tick: the service time does not include what a batch costs beside the model.
  const BatchPolicy fast = taught(1, Duration::zero(), microseconds(20));
  EXPECT_GE(fast.share(waiting(60, kStart)), 60u);
}

TEST(BatchPolicyShare, IfLargeBatchesPayAllItemsAreTaken) {
  const BatchPolicy policy = taught(2, milliseconds(5), microseconds(200));
  EXPECT_EQ(policy.share(waiting(63, kStart, 2)), 64u);
}

TEST(BatchPolicyShare, AFullBatchIsTakenWhole) {
  const BatchPolicy policy = taught(2, microseconds(50), milliseconds(1));
  EXPECT_EQ(policy.share(waiting(64, kStart, 2)), 64u);
  EXPECT_EQ(policy.share(waiting(1000, kStart, 2)), 64u);
}

TEST(BatchPolicyShare, OneRequestIsNotCutForOneWorker) {
  const BatchPolicy policy = taught(1, microseconds(50), milliseconds(1));
  EXPECT_EQ(policy.share({32, 1, 1, kStart, kStart}), 64u);
  EXPECT_EQ(policy.share({32, 2, 1, kStart, kStart}), 16u);
}

TEST(BatchPolicyShare, TheCostMayGrowWithAWeightOfAnyUnit) {
  for (const double unit : {1e-6, 1.0, 1e6}) {
    BatchPolicy policy(adaptive(1));
    TimePoint now = kStart;
    for (int round = 0; round < 100; ++round) {
      const Duration service = round % 2 == 0 ? milliseconds(10) : milliseconds(50);
      policy.dispatched(now, 16);
      policy.completed(now += service, 16, service, 16, unit * static_cast<double>(service.count()));
      now += hours(1);
    }
    EXPECT_EQ(policy.share(waiting(32, kStart)), 16u) << "equal sizes alone would give no slope";
  }
}

TEST(BatchPolicyShare, AllItemsAreTakenUntilTheCostIsKnown) {
  EXPECT_EQ(BatchPolicy(adaptive(2)).share(waiting(32, kStart, 2)), 64u);
  BatchPolicy policy(adaptive(2));
  teach_cost(policy, microseconds(50), milliseconds(1), 16, 16);
  EXPECT_EQ(policy.share(waiting(32, kStart, 2)), 64u) << "equal sizes give no slope";
  teach_cost(policy, microseconds(50), milliseconds(1), 15, 17);
  EXPECT_EQ(policy.share(waiting(32, kStart, 2)), 64u) << "nearly equal sizes give no reliable slope";
}

TEST(BatchPolicyShare, OnlyTheAdaptivePolicyTakesShares) {
  for (const PolicyKind kind : {PolicyKind::kGreedy, PolicyKind::kWindow}) {
    BatchPolicy policy(options(kind, 2));
    teach_cost(policy, microseconds(50), milliseconds(1));
    EXPECT_EQ(policy.share(waiting(32, kStart, 2)), 64u);
  }
}

}  // namespace
}  // namespace service_streamer::policy_tests
