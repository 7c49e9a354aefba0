// Several workers, the bound of max_latency, changes at run time, and extreme values.

#include <algorithm>
#include <limits>
#include <string>

#include "batching/batch_policy_testing.h"
#include "simulation/random.h"

namespace service_streamer::policy_tests {
namespace {

// ------------------------------------------------------------ several workers

// A policy that has learned a fixed cost of 8 ms, expects no returns, and has no batch running.
BatchPolicy quiet(int workers, Duration max_latency = milliseconds(100), Duration service = kService) {
  BatchPolicy policy(adaptive(workers, max_latency));
  run_batch(policy, kStart - hours(1), 4, service);
  return policy;
}

TEST(BatchPolicy, WorkersAreSpacedEvenlyIfTheQueueIsLessThanAFairShare) {
  BatchPolicy policy = quiet(2);
  policy.dispatched(kStart, 8);
  expect_verdict(policy.due(waiting(7, kStart), kStart), kStart + kService / 2, CloseReason::kIdle);
  const TimePoint even = kStart + kService / 2;
  expect_verdict(policy.due(waiting(7, kStart), even), even, CloseReason::kIdle);
}

// With q queued and 8 running requests, the fair share of one of four workers is a quarter: 3 of 11.
TEST(BatchPolicy, FairShareCountsQueuedAndRunningRequests) {
  BatchPolicy policy = quiet(4);
  policy.dispatched(kStart, 8);
  const Duration even = kService / 4;
  expect_verdict(policy.due(waiting(2, kStart), kStart), kStart + even, CloseReason::kIdle);
  expect_verdict(policy.due(waiting(3, kStart), kStart), kStart + even * 9 / 16, CloseReason::kIdle);
}

TEST(BatchPolicy, AFairShareWaitsLessIfMoreWorkersAreIdle) {
  BatchPolicy policy = quiet(4);
  policy.dispatched(kStart, 8);
  const Duration even = kService / 4;
  for (const int idle : {1, 2, 3}) {
    const int busy = 4 - idle;
    expect_verdict(policy.due(waiting(8, kStart, idle), kStart), kStart + even * busy * busy / 16, CloseReason::kIdle);
  }
  expect_verdict(policy.due(waiting(8, kStart, 4), kStart), kStart, CloseReason::kIdle);
}

TEST(BatchPolicy, DoesNotSpaceABatchFromOneInWhichNoRequestEnds) {
  BatchPolicy policy = quiet(2);
  policy.dispatched(kStart, 0);
  expect_verdict(policy.due(waiting(1, kStart), kStart), kStart, CloseReason::kIdle);
}

TEST(BatchPolicy, DoesNotSpaceABatchFromACompletedOne) {
  BatchPolicy policy = quiet(2);
  const TimePoint done = run_batch(policy, kStart, 8, milliseconds(1));
  expect_verdict(policy.due(waiting(1, done, 2), done), done, CloseReason::kIdle);
}

TEST(BatchPolicy, OneWorkerIsNotSpaced) {
  BatchPolicy policy = quiet(1);
  policy.dispatched(kStart, 8);
  expect_verdict(policy.due(waiting(1, kStart), kStart), kStart, CloseReason::kIdle);
}

TEST(BatchPolicy, FastModelIsNotSpaced) {
  BatchPolicy policy = quiet(2, milliseconds(100), 4 * BatchPolicy::kTick - Duration(1));
  policy.dispatched(kStart, 8);
  expect_verdict(policy.due(waiting(1, kStart), kStart), kStart, CloseReason::kIdle);
  policy = quiet(2, milliseconds(100), 4 * BatchPolicy::kTick);
  policy.dispatched(kStart, 8);
  EXPECT_GT(policy.due(waiting(1, kStart), kStart).at, kStart);
}

// ------------------------------------------------------------ max_latency

TEST(BatchPolicy, MaxLatencyBoundsTheSpacing) {
  BatchPolicy policy = quiet(2, milliseconds(1));
  policy.dispatched(kStart, 8);
  const TimePoint bound = kStart + milliseconds(1);
  expect_verdict(policy.due(waiting(1, kStart), kStart), bound, CloseReason::kMaxLatency);
  expect_verdict(policy.due(waiting(1, kStart), bound), bound, CloseReason::kMaxLatency);
}

TEST(BatchPolicy, MaxLatencyBoundsTheLinger) {
  BatchPolicy policy(adaptive(1, microseconds(450)));
  const TimePoint done = teach_returns(policy, 16, 16, kThink);
  const TimePoint ready = done - microseconds(50);
  const TimePoint bound = ready + microseconds(450);
  expect_verdict(policy.due(waiting(1, ready), done), bound, CloseReason::kMaxLatency);
  expect_verdict(policy.due(waiting(1, ready), bound), bound, CloseReason::kMaxLatency);
}

// After any history, a batch goes within max_latency after there are an item and an idle worker.
TEST(BatchPolicy, AfterAnyHistoryABatchWaitsForMaxLatencyAtMost) {
  simulation::Random random(5);
  for (int history = 0; history < 300; ++history) {
    const int workers = random.between(1, 4);
    const Duration max_latency = microseconds(random.between(0, 20000));
    const PolicyKind kind = kKinds[random.between(0, 2)];
    BatchPolicy policy(options(kind, workers, max_latency));
    TimePoint now = kStart;
    for (int event = 0; event < 200; ++event) {
      now += microseconds(random.between(0, 3000));
      const int requests = random.between(0, 16);
      switch (random.between(0, 2)) {
        case 0:
          arrive(policy, now, requests);
          break;
        case 1:
          policy.dispatched(now, requests);
          break;
        default:
          policy.completed(now, static_cast<std::size_t>(requests), microseconds(random.between(0, 30000)), requests);
      }
      const TimePoint ready = now - microseconds(random.between(0, 2000));
      const BatchPolicy::Queue queue = waiting(random.between(1, 70), ready, random.between(1, workers));
      // Asks again only at the times that the policy gives: no other event is needed.
      TimePoint asked = now;
      for (int question = 0; question < 4 && policy.due(queue, asked).at > asked; ++question) {
        asked = policy.due(queue, asked).at;
      }
      ASSERT_LE(policy.due(queue, asked).at, asked);
      ASSERT_LE(asked, std::max(now, ready + max_latency));
    }
  }
}

// ------------------------------------------------------------ at run time

TEST(BatchPolicy, AChangeOfThePolicyKeepsWhatWasLearned) {
  BatchPolicy policy(options(PolicyKind::kGreedy));
  const TimePoint done = teach_returns(policy, 16, 16, kThink);
  expect_verdict(policy.due(waiting(1, done), done), done, CloseReason::kIdle);
  policy.configure(options(PolicyKind::kWindow));
  expect_verdict(policy.due(waiting(1, done), done), done + milliseconds(100), CloseReason::kWindow);
  policy.configure(adaptive());
  expect_verdict(policy.due(waiting(1, done), done), done + kLinger, CloseReason::kLinger);
}

TEST(BatchPolicy, NewBatchSizeAndMaxLatencyApplyAtOnce) {
  BatchPolicy policy(adaptive());
  const TimePoint done = teach_returns(policy, 16, 16, kThink);
  BatchPolicy::Options changed = adaptive(1, microseconds(200));
  policy.configure(changed);
  EXPECT_EQ(policy.watch_end(), done + microseconds(200));
  changed.batch_size = 2;
  policy.configure(changed);
  expect_verdict(policy.due(waiting(2, done), done), done, CloseReason::kFull);
}

// ------------------------------------------------------------ extreme values

TEST(BatchPolicy, AReturnAtTheTimeOfTheCompletionCounts) {
  BatchPolicy policy(adaptive());
  const TimePoint done = teach_returns(policy, 16, 16, Duration::zero());
  expect_verdict(policy.due(waiting(1, done), done), done + BatchPolicy::kTick, CloseReason::kLinger);
}

TEST(BatchPolicy, AnArrivalBeforeTheCompletionIsNoReturn) {
  BatchPolicy policy(adaptive());
  const TimePoint done = teach_returns(policy, 16, 16, kThink);
  arrive(policy, done - Duration(1), 16);
  expect_verdict(policy.due(waiting(16, done), done), done + kLinger, CloseReason::kLinger);
}

TEST(BatchPolicy, ModelThatTakesNoTimeIsServedGreedily) {
  BatchPolicy policy(adaptive(2));
  TimePoint now = kStart;
  for (int round = 0; round < 40; ++round) {
    now = run_batch(policy, now, 1 + round % 3, Duration::zero());
    policy.arrived(now);
  }
  policy.dispatched(now, 3);
  expect_verdict(policy.due(waiting(1, now), now), now, CloseReason::kIdle);
}

TEST(BatchPolicy, ANegativeServiceTimeCountsAsZero) {
  BatchPolicy policy(adaptive());
  policy.completed(kStart, 1, Duration(-5), 1);
  EXPECT_EQ(policy.mean_service(), Duration::zero());
  policy.completed(kStart, 1, Duration(80), 1);
  EXPECT_EQ(policy.mean_service(), Duration(10));
}

TEST(BatchPolicy, LongestDurationsDoNotOverflow) {
  for (const PolicyKind kind : kKinds) {
    BatchPolicy policy(options(kind, 2, Duration::max()));
    policy.completed(kStart, std::numeric_limits<std::size_t>::max(), Duration::max(), 16);
    arrive(policy, kStart + hours(1), 16);
    policy.completed(kStart + hours(2), 1, Duration::max(), 16);
    EXPECT_GT(policy.mean_service(), Duration::max() / 2);
    policy.dispatched(kStart + hours(2), 8);
    const TimePoint now = kStart + hours(3);
    EXPECT_GE(policy.due(waiting(1, now), now).at, now);
    EXPECT_GE(policy.due(waiting(1, kStart), now).at, now);
  }
}

TEST(BatchPolicy, AWindowOfTheLongestMaxLatencyNeverEnds) {
  const BatchPolicy policy(options(PolicyKind::kWindow, 1, Duration::max()));
  expect_verdict(policy.due(waiting(1, kStart), kStart), TimePoint::max(), CloseReason::kWindow);
}

TEST(BatchPolicy, MoreCompletedThanDispatchedRequestsAreHarmless) {
  BatchPolicy policy = quiet(2);
  policy.completed(kStart - hours(1), 4, kService, 100);
  policy.dispatched(kStart, 8);
  expect_verdict(policy.due(waiting(1, kStart), kStart), kStart + kService / 2, CloseReason::kIdle);
}

TEST(BatchPolicy, NamesAreThoseOfThePythonInterface) {
  EXPECT_STREQ(to_string(PolicyKind::kAdaptive), "adaptive");
  EXPECT_STREQ(to_string(PolicyKind::kGreedy), "greedy");
  EXPECT_STREQ(to_string(PolicyKind::kWindow), "window");
  const std::string names[] = {"full",  "idle",     "returned", "linger", "max_latency", "window",
                               "share", "priority", "memory",   "slo",    "drain"};
  for (int reason = 0; reason < 11; ++reason) {
    EXPECT_EQ(to_string(static_cast<CloseReason>(reason)), names[reason]);
  }
}

}  // namespace
}  // namespace service_streamer::policy_tests
