// Deadlines: at the cut, by expire(), and by the timer thread.

#include <gtest/gtest.h>

#include <atomic>

#include "batching/engine_timer_testing.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using Ready = Engine::Ready;

constexpr EngineOptions kByFour{.batch_size = 4, .policy = PolicyKind::kGreedy, .max_queue = 8};

TimePoint past() {
  return Clock::now() - milliseconds(1);
}
TimePoint far() {
  return Clock::now() + hours(1);
}

TEST(EngineDeadline, AnExpiredRequestIsNotGivenToTheModel) {
  Engine engine(kByFour);
  const CallPtr late = submitted(engine, 3, {.deadline = past()});
  const CallPtr in_time = submitted(engine, 2, {.deadline = far()});
  Batch batch = take(engine);
  EXPECT_TRUE(late->ended_as(Outcome::kExpired));
  EXPECT_TRUE(late->released());
  EXPECT_EQ(batch.items, 2U);
  EXPECT_EQ(batch.ranges[0].request, in_time.get());
  answer(engine, batch);
  EXPECT_EQ(engine.stats().counters.expired, 1U);
}

TEST(EngineDeadline, ExpiredRequestsAloneMakeNoBatch) {
  Engine engine(kByFour);
  const CallPtr late = submitted(engine, 1, {.deadline = past()});
  const CallPtr also_late = submitted(engine, 1, {.deadline = past()});
  EXPECT_EQ(take(engine).items, 0U);
  EXPECT_TRUE(late->released() && also_late->released());
  EXPECT_EQ(engine.stats().counters.batches, 0U);
  EXPECT_EQ(engine.stats().queued_requests, 0);
}

TEST(EngineDeadline, TheRestOfAnExpiredRequestIsNotGivenToTheModel) {
  Engine engine(kByFour);
  const CallPtr large = submitted(engine, 8, {.deadline = Clock::now() + hours(1)});
  Batch first = take(engine);
  large->deadline = past();
  EXPECT_EQ(take(engine).items, 0U);
  EXPECT_TRUE(large->ended_as(Outcome::kExpired));
  EXPECT_FALSE(large->released());
  answer(engine, first);
  EXPECT_TRUE(large->released());
}

TEST(EngineDeadline, RequestsThatExpireAtTheCutMakeRoomForProducers) {
  Engine engine(kByFour);
  const CallPtr late = submitted(engine, 8, {.deadline = past()});
  const CallPtr waits = make_call(8);
  EXPECT_EQ(submit(engine, waits), Engine::Admission::kWaiting);
  EXPECT_EQ(take(engine).items, 0U);
  serve_all(engine);
  EXPECT_TRUE(waits->answered());
}

TEST(EngineDeadline, ExpireEndsRequestsInEveryPhase) {
  Engine engine(kByFour);
  const CallPtr running = submitted(engine, 2, {.deadline = far()});
  const CallPtr partly = submitted(engine, 4, {.deadline = far()});
  Batch batch = take(engine);
  running->deadline = partly->deadline = past();
  const CallPtr queued = submitted(engine, 4, {.deadline = past(), .watched = true});
  const CallPtr stays = submitted(engine, 2);
  const CallPtr waiting = make_call(7, {.deadline = past()});
  EXPECT_EQ(submit(engine, waiting), Engine::Admission::kWaiting);
  expire(engine);
  for (const CallPtr& call : {running, partly, queued, waiting}) EXPECT_TRUE(call->ended_as(Outcome::kExpired));
  EXPECT_FALSE(running->released());
  EXPECT_FALSE(partly->released());
  EXPECT_TRUE(queued->released() && waiting->released());
  EXPECT_FALSE(stays->done());
  EXPECT_EQ(engine.stats().queued_items, 2U);
  answer(engine, batch);
  EXPECT_TRUE(running->released() && partly->released());
  serve_all(engine);
  EXPECT_TRUE(stays->answered());
  EXPECT_EQ(engine.stats().counters.expired, 4U);
}

TEST(EngineDeadline, ExpireMakesRoomForProducers) {
  Engine engine(kByFour);
  const CallPtr late = submitted(engine, 8, {.deadline = past()});
  const CallPtr waits = make_call(8);
  EXPECT_EQ(submit(engine, waits), Engine::Admission::kWaiting);
  expire(engine);
  EXPECT_EQ(engine.stats().waiting_requests, 0);
  EXPECT_EQ(engine.stats().queued_items, 8U);
  serve_all(engine);
  EXPECT_TRUE(waits->answered());
}

TEST(EngineDeadline, ExpireLeavesRequestsWithALaterDeadline) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1, {.deadline = far()});
  const CallPtr unbounded = submitted(engine, 1);
  expire(engine);
  EXPECT_FALSE(call->done() || unbounded->done());
  serve_all(engine);
}

TEST(EngineDeadline, TheTimerEndsARequestAtItsDeadline) {
  Engine engine(kByFour);
  Timer timer(engine);
  ASSERT_TRUE(timer.asleep());
  const TimePoint deadline = Clock::now() + milliseconds(5);
  const CallPtr call = submitted(engine, 1, {.deadline = deadline});
  EXPECT_EQ(wait_for(*call), Completion::Wait::kDone);
  EXPECT_TRUE(call->ended_as(Outcome::kExpired));
  EXPECT_GE(call->ended, deadline);
}

TEST(EngineDeadline, TheTimerFindsRequestsThatCameBeforeIt) {
  Engine engine(kByFour);
  const CallPtr late = submitted(engine, 1, {.deadline = Clock::now() + milliseconds(2)});
  const CallPtr later = submitted(engine, 1, {.deadline = Clock::now() + milliseconds(4)});
  Timer timer(engine);
  for (const CallPtr& call : {late, later}) {
    EXPECT_EQ(wait_for(*call), Completion::Wait::kDone);
    EXPECT_TRUE(call->ended_as(Outcome::kExpired));
  }
}

TEST(EngineDeadline, AnEarlierDeadlineWakesTheTimerAndALaterOneDoesNot) {
  Engine engine(kByFour);
  const CallPtr hour = submitted(engine, 1, {.deadline = far()});
  Timer timer(engine);
  ASSERT_TRUE(timer.asleep());
  const int before = timer.wake_ups();
  const CallPtr later = submitted(engine, 1, {.deadline = far() + hours(1)});
  const CallPtr unbounded = submitted(engine, 1);
  const CallPtr watched = submitted(engine, 1, {.deadline = Clock::now(), .watched = true});
  EXPECT_TRUE(timer.asleep());
  EXPECT_EQ(timer.wake_ups(), before);
  const CallPtr soon = submitted(engine, 1, {.deadline = Clock::now() + milliseconds(1)});
  EXPECT_EQ(wait_for(*soon), Completion::Wait::kDone);
  EXPECT_TRUE(soon->ended_as(Outcome::kExpired));
  EXPECT_GT(timer.wake_ups(), before);
  EXPECT_FALSE(hour->done() || later->done() || unbounded->done());
}

TEST(EngineDeadline, TheTimerAlsoEndsRequestsThatRunOrWaitForRoom) {
  Engine engine(kByFour);
  const CallPtr running = submitted(engine, 4, {.deadline = far()});
  Batch batch = take(engine);
  EXPECT_GT(batch.items, 0U);
  const TimePoint deadline = running->deadline = Clock::now() + milliseconds(2);
  const CallPtr queued = submitted(engine, 8);
  const CallPtr waiting = make_call(1, {.deadline = deadline});
  EXPECT_EQ(submit(engine, waiting), Engine::Admission::kWaiting);
  Timer timer(engine);
  EXPECT_EQ(wait_for(*running), Completion::Wait::kDone);
  EXPECT_EQ(wait_for(*waiting), Completion::Wait::kDone);
  EXPECT_TRUE(running->ended_as(Outcome::kExpired));
  EXPECT_TRUE(waiting->ended_as(Outcome::kExpired));
  EXPECT_FALSE(running->released());
  answer(engine, batch);
  // Released by the worker or by the timer, whichever is later.
  EXPECT_TRUE(eventually([&] { return running->released(); }));
}

TEST(EngineDeadline, TheTimerReturnsWhenTheEngineIsClosedAndEmpty) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  Timer timer(engine);
  close(engine, true);
  EXPECT_TRUE(timer.asleep());
  EXPECT_FALSE(timer.thread().finished()) << "a request may still expire";
  serve_all(engine);
  EXPECT_TRUE(eventually([&] { return timer.thread().finished(); }));
}

TEST(EngineDeadline, TheTimerDoesNotWaitForABatchWhoseRequestsHaveEnded) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  Batch stuck = take(engine);
  Timer timer(engine);
  ASSERT_TRUE(timer.asleep());
  close(engine, true);
  abort(engine);
  EXPECT_TRUE(eventually([&] { return timer.thread().finished(); }));
  answer(engine, stuck);
}

TEST(EngineDeadline, ASignalInterruptsTheTimer) {
  Engine engine(kByFour);
  std::atomic<DeadlineTimer::Ready> ready{DeadlineTimer::Ready::kClosed};
  Thread timer([&] {
    Sleeping sleeping;
    ready = engine.deadline_timer().wait(sleeping.waiter());
  });
  ASSERT_TRUE(timer.interrupt_until([&] { return timer.finished(); }));
  EXPECT_EQ(ready, DeadlineTimer::Ready::kInterrupted);
}

}  // namespace
}  // namespace service_streamer::support
