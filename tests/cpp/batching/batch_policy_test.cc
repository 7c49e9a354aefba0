// The rules of one worker: greedy, window, the linger for returning callers, the fixed cost.

#include "batching/batch_policy_testing.h"

namespace service_streamer::policy_tests {
namespace {

// ------------------------------------------------------------ rules for all

TEST(BatchPolicy, FullBatchGoesAtOnceUnderEveryPolicy) {
  for (const PolicyKind kind : kKinds) {
    const BatchPolicy policy(options(kind));
    expect_verdict(policy.due(waiting(64, kStart), kStart), kStart, CloseReason::kFull);
    expect_verdict(policy.due(waiting(1000, kStart), kStart), kStart, CloseReason::kFull);
    EXPECT_STRNE(to_string(policy.due(waiting(63, kStart), kStart).reason), "full");
  }
}

TEST(BatchPolicy, FullIsCountedInItemsNotInRequests) {
  const BatchPolicy policy(options(PolicyKind::kWindow));
  expect_verdict(policy.due({64, 1, 1, kStart, kStart}, kStart), kStart, CloseReason::kFull);
}

TEST(BatchPolicy, FullBatchDoesNotWaitForReturnsOrSpacing) {
  BatchPolicy policy(adaptive(2));
  const TimePoint done = teach_returns(policy, 16, 16, kThink);
  policy.dispatched(done, 8);
  expect_verdict(policy.due(waiting(64, done), done), done, CloseReason::kFull);
}

TEST(BatchPolicy, ZeroMaxLatencyMakesEveryPolicyGreedy) {
  for (const PolicyKind kind : kKinds) {
    BatchPolicy policy(options(kind, 2, Duration::zero()));
    const TimePoint done = teach_returns(policy, 16, 16, kThink);
    policy.dispatched(done, 8);
    expect_verdict(policy.due(waiting(1, done), done), done, CloseReason::kIdle);
  }
}

TEST(BatchPolicy, GreedyTakesWhatIsQueuedEvenIfReturnsAreExpected) {
  BatchPolicy policy(options(PolicyKind::kGreedy, 2));
  const TimePoint done = teach_returns(policy, 16, 16, kThink);
  policy.dispatched(done, 8);
  expect_verdict(policy.due(waiting(1, done), done), done, CloseReason::kIdle);
  EXPECT_EQ(policy.watch_end(), TimePoint::min());
}

TEST(BatchPolicy, WindowStartsWithTheOldestArrivalAndNotWithTheWorker) {
  const BatchPolicy policy(options(PolicyKind::kWindow));
  const TimePoint end = kStart + milliseconds(100);
  for (const int late_ms : {0, 50, 99, 150}) {
    const TimePoint now = kStart + milliseconds(late_ms);
    expect_verdict(policy.due({3, 3, 1, kStart, now}, now), end, CloseReason::kWindow);
  }
}

TEST(BatchPolicy, SameQuestionGetsTheSameAnswer) {
  BatchPolicy policy(adaptive());
  const TimePoint done = teach_returns(policy, 16, 16, kThink);
  const BatchPolicy::Verdict first = policy.due(waiting(1, done), done);
  const BatchPolicy::Verdict second = policy.due(waiting(1, done), done);
  expect_verdict(second, first.at, first.reason);
}

// ------------------------------------------------------------ the linger

TEST(BatchPolicy, FirstBatchGoesAtOnce) {
  const BatchPolicy policy(adaptive(4));
  expect_verdict(policy.due(waiting(1, kStart, 4), kStart), kStart, CloseReason::kIdle);
  EXPECT_EQ(policy.watch_end(), TimePoint::min());
}

TEST(BatchPolicy, LingersToTheEndOfTheBurstForCallersAboutToReturn) {
  BatchPolicy policy(adaptive());
  const TimePoint done = teach_returns(policy, 16, 16, kThink);
  EXPECT_EQ(policy.watch_end(), done + kLinger);
  const TimePoint now = done + microseconds(100);
  policy.arrived(now);
  expect_verdict(policy.due(waiting(1, now), now), done + kLinger, CloseReason::kLinger);
}

TEST(BatchPolicy, GoesAsSoonAsAllExpectedCallersAreBack) {
  BatchPolicy policy(adaptive());
  const TimePoint done = teach_returns(policy, 16, 16, kThink);
  const TimePoint now = done + kLinger - microseconds(50);
  arrive(policy, now, 15);
  EXPECT_GT(policy.due(waiting(15, now), now).at, now);
  policy.arrived(now);
  expect_verdict(policy.due(waiting(16, now), now), now, CloseReason::kReturned);
  EXPECT_EQ(policy.watch_end(), TimePoint::min());
}

TEST(BatchPolicy, GoesWithoutCallersThatMissTheLinger) {
  BatchPolicy policy(adaptive());
  const TimePoint done = teach_returns(policy, 16, 16, kThink);
  arrive(policy, done + kThink, 10);
  const TimePoint end = done + kLinger;
  expect_verdict(policy.due(waiting(10, done + kThink), end), end, CloseReason::kLinger);
}

TEST(BatchPolicy, GivesTheRightReasonWhenAskedLate) {
  BatchPolicy all_back(adaptive());
  const TimePoint done = teach_returns(all_back, 16, 16, kThink);
  const TimePoint late = done + milliseconds(5);
  arrive(all_back, done + kThink, 16);
  expect_verdict(all_back.due(waiting(16, done + kThink), late), late, CloseReason::kReturned);

  BatchPolicy none_expected(adaptive());
  teach_returns(none_expected, 16, 0, kThink);
  expect_verdict(none_expected.due(waiting(1, done), late), late, CloseReason::kIdle);
}

TEST(BatchPolicy, ARequestAfterTheLingerGoesAtOnce) {
  BatchPolicy policy(adaptive());
  const TimePoint late = teach_returns(policy, 16, 16, kThink) + kLinger;
  expect_verdict(policy.due(waiting(1, late), late), late, CloseReason::kIdle);
}

TEST(BatchPolicy, LoneClientNeverWaits) {
  BatchPolicy policy(adaptive());
  const TimePoint back = teach_returns(policy, 1, 1, kThink) + kThink;
  policy.arrived(back);
  expect_verdict(policy.due(waiting(1, back), back), back, CloseReason::kReturned);
}

TEST(BatchPolicy, WatchEndIgnoresASingleExpectedCallerButTheLingerDoesNot) {
  for (const int callers : {1, 2}) {
    BatchPolicy policy(adaptive());
    const TimePoint done = teach_returns(policy, callers, callers, kThink);
    EXPECT_EQ(policy.watch_end(), callers == 1 ? TimePoint::min() : done + kLinger);
    const TimePoint now = done + kLinger - microseconds(1);
    EXPECT_GT(policy.due(waiting(1, now), now).at, now) << "another caller came";
  }
}

TEST(BatchPolicy, LingersForNoLongerThanAQuarterOfTheFixedCost) {
  BatchPolicy policy(adaptive());
  const TimePoint done = teach_returns(policy, 16, 16, kWatch - microseconds(1));
  EXPECT_EQ(policy.watch_end(), done + kWatch);
  expect_verdict(policy.due(waiting(1, done), done), done + kWatch, CloseReason::kLinger);
  expect_verdict(policy.due(waiting(1, done), done + kWatch), done + kWatch, CloseReason::kLinger);
}

TEST(BatchPolicy, ArrivalsAfterTheWatchAreNoReturns) {
  BatchPolicy policy(adaptive());
  const TimePoint done = teach_returns(policy, 16, 16, kWatch + microseconds(1));
  EXPECT_EQ(policy.watch_end(), TimePoint::min());
  expect_verdict(policy.due(waiting(1, done), done), done, CloseReason::kIdle);
}

TEST(BatchPolicy, StopsExpectingCallersThatNoLongerReturn) {
  BatchPolicy policy(adaptive());
  TimePoint now = teach_returns(policy, 16, 16, kThink);
  for (int round = 0; round < 30; ++round) now = run_batch(policy, now + milliseconds(20), 16, kService);
  expect_verdict(policy.due(waiting(1, now), now), now, CloseReason::kIdle);
}

// One of sixteen comes back. Two queued requests would lose 2 ms each, to save one batch of 8 ms.
TEST(BatchPolicy, DoesNotLingerIfTheQueuedRequestsLoseMoreThanTheExpectedOnesSave) {
  BatchPolicy policy(adaptive());
  const TimePoint done = teach_returns(policy, 16, 1, kWatch - microseconds(1));
  expect_verdict(policy.due(waiting(1, done), done), done + kWatch, CloseReason::kLinger);
  expect_verdict(policy.due(waiting(2, done), done), done, CloseReason::kIdle);
  // The rest of the linger is shorter, so more requests may wait for it.
  const TimePoint later = done + kWatch / 2;
  expect_verdict(policy.due(waiting(2, later), later), done + kWatch, CloseReason::kLinger);
}

// With four workers, a saved batch is worth only a quarter of its service time.
TEST(BatchPolicy, WithSeveralWorkersASavedBatchIsWorthLess) {
  for (const int workers : {1, 4}) {
    BatchPolicy policy(adaptive(workers));
    const TimePoint done = teach_returns(policy, 16, 1, kWatch - microseconds(1));
    const bool held = policy.due(waiting(1, done), done).at > done;
    EXPECT_EQ(held, workers == 1);
  }
}

TEST(BatchPolicy, DoesNotLingerIfTheWatchIsShorterThanATick) {
  for (const bool shorter : {true, false}) {
    BatchPolicy policy(adaptive());
    TimePoint now = kStart;
    for (int round = 0; round < 40; ++round) {
      now = run_batch(policy, now, 16, 4 * BatchPolicy::kTick - Duration(shorter ? 8 : 0));
      arrive(policy, now, round < 39 ? 15 : 0);
    }
    EXPECT_EQ(policy.watch_end(), shorter ? TimePoint::min() : now + BatchPolicy::kTick);
    EXPECT_EQ(policy.due(waiting(1, now), now).at, shorter ? now : now + BatchPolicy::kTick);
  }
}

TEST(BatchPolicy, DoesNotLingerForCallersThatOtherIdleWorkersCanServe) {
  BatchPolicy policy(adaptive(2));
  const TimePoint done = teach_returns(policy, 16, 16, kThink);
  arrive(policy, done, 8);
  EXPECT_GT(policy.due(waiting(8, done, 1), done).at, done);
  expect_verdict(policy.due(waiting(8, done, 2), done), done, CloseReason::kReturned);
}

TEST(BatchPolicy, CallersOfAnotherBatchAreExpectedUntilItsWatchEnds) {
  for (const bool watched : {true, false}) {
    BatchPolicy policy(adaptive(2));
    const TimePoint done = teach_returns(policy, 16, 16, kThink);
    const Duration after = watched ? kWatch : kWatch + Duration(1);
    policy.dispatched(done - milliseconds(4), 8);
    policy.completed(done + after, 16, kService, 8);
    // Half as many callers as before are back, but all callers of the batch of eight.
    arrive(policy, done + after, 8);
    const bool held = policy.due(waiting(8, done + after, 1), done + after).at > done + after;
    EXPECT_EQ(held, watched);
  }
}

// ------------------------------------------------------------ the fixed cost

// Measures the watch, a quarter of the fixed cost, with callers that always return at its end.
Duration learned_watch(int small, Duration small_service, int large, Duration large_service) {
  BatchPolicy policy(adaptive(1, hours(1)));
  TimePoint now = kStart;
  for (int round = 0; round < 400; ++round) {
    const bool even = round % 2 == 0;
    now = run_batch(policy, now, even ? small : large, even ? small_service : large_service);
    if (policy.watch_end() != TimePoint::min() && round > 300) return policy.watch_end() - now;
    // Arrivals are spread over the longest possible watch, so that some are within the real one.
    for (Duration delay = microseconds(20); delay < large_service; delay += microseconds(20)) {
      policy.arrived(now + delay);
    }
    now += hours(1);
  }
  return Duration::zero();
}

void expect_close(Duration actual, Duration expected) {
  EXPECT_LE(std::chrono::abs(actual - expected), microseconds(1)) << actual.count() << " ns";
}

TEST(BatchPolicy, FixedCostIsTheInterceptOfServiceOverSize) {
  expect_close(learned_watch(8, microseconds(6600), 24, microseconds(9800)), microseconds(5000) / 4);
}

TEST(BatchPolicy, BatchesOfEqualSizeGiveNoSlope) {
  expect_close(learned_watch(16, milliseconds(8), 16, milliseconds(8)), microseconds(8000) / 4);
}

TEST(BatchPolicy, FixedCostIsNeverNegative) {
  EXPECT_EQ(learned_watch(1, microseconds(10), 20, milliseconds(9)), Duration::zero());
}

TEST(BatchPolicy, FixedCostIsNeverMoreThanTheMeanService) {
  const Duration watch = learned_watch(4, milliseconds(10), 24, milliseconds(6));
  EXPECT_GE(watch, microseconds(7000) / 4);
  EXPECT_LE(watch, microseconds(9000) / 4);
}

TEST(BatchPolicy, MeansStartWithTheFirstBatchAndThenMoveByAnEighth) {
  BatchPolicy policy(adaptive());
  EXPECT_EQ(policy.mean_service(), Duration::zero());
  EXPECT_EQ(policy.mean_batch_size(), 0);
  run_batch(policy, kStart, 8, milliseconds(4));
  EXPECT_EQ(policy.mean_service(), milliseconds(4));
  EXPECT_EQ(policy.mean_batch_size(), 8);
  run_batch(policy, kStart + hours(1), 16, milliseconds(12));
  EXPECT_EQ(policy.mean_service(), milliseconds(5));
  EXPECT_EQ(policy.mean_batch_size(), 9);
}

}  // namespace
}  // namespace service_streamer::policy_tests
