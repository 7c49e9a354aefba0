// close(), abort() and wait_until_drained(): which requests are served, which end, and which threads wake up.

#include <gtest/gtest.h>

#include <deque>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using Admission = Engine::Admission;
using Ready = Engine::Ready;
using Wait = Completion::Wait;

constexpr EngineOptions kByFour{.batch_size = 4, .policy = PolicyKind::kGreedy, .max_queue = 8};

Ready polled(Engine& engine) {
  CloseReason reason{};
  return engine.poll(reason);
}

Wait drained_by(Engine& engine, TimePoint deadline) {
  Sleeping sleeping;
  return engine.wait_until_drained(sleeping.waiter(), deadline);
}

// A request in each phase: one in the waiting room, one in the queue, one partly and one wholly in a batch.
struct AllPhases {
  explicit AllPhases(Engine& engine) {
    running = submitted(engine, 2);
    partly = submitted(engine, 4);
    queued = submitted(engine, 2);
    batch = take(engine);
    next_queued = submitted(engine, 4);
    waiting = make_call(5);
    EXPECT_EQ(submit(engine, waiting), Admission::kWaiting);
  }

  CallPtr running, partly, queued, next_queued, waiting;
  Batch batch;
};

TEST(EngineClose, RefusesNewRequests) {
  for (const bool drain : {true, false}) {
    Engine engine(kByFour);
    close(engine, drain);
    EXPECT_TRUE(engine.closed());
    const CallPtr late = make_call(1);
    EXPECT_EQ(submit(engine, late), Admission::kClosed);
    EXPECT_FALSE(late->done());
    EXPECT_EQ(engine.stats().counters.submitted, 0U);
    EXPECT_EQ(engine.stats().counters.rejected, 0U) << "not refused because the queue is full";
  }
}

TEST(EngineClose, DrainingServesAllAcceptedRequests) {
  Engine engine(kByFour);
  AllPhases calls(engine);
  close(engine, true);
  EXPECT_FALSE(calls.queued->done());
  EXPECT_EQ(polled(engine), Ready::kBatch);
  Batch next = cut(engine, CloseReason::kDrain);
  answer(engine, calls.batch);
  answer(engine, next);
  serve_all(engine);
  for (const CallPtr& call : {calls.running, calls.partly, calls.queued, calls.next_queued, calls.waiting}) {
    EXPECT_TRUE(call->answered());
  }
  EXPECT_EQ(polled(engine), Ready::kClosed);
  EXPECT_EQ(engine.stats().counters.dropped, 0U);
}

TEST(EngineClose, DrainingDoesNotWaitForMoreRequests) {
  Engine engine({.batch_size = 4, .max_latency = hours(1), .policy = PolicyKind::kWindow});
  const CallPtr call = submitted(engine, 1);
  EXPECT_EQ(take(engine).items, 0U);
  close(engine, true);
  Batch batch = take(engine);
  EXPECT_EQ(batch.reason, CloseReason::kDrain);
  answer(engine, batch);
}

TEST(EngineClose, WithoutDrainEndsRequestsThatAreNotWhollyInABatch) {
  Engine engine(kByFour);
  AllPhases calls(engine);
  close(engine, false);
  for (const CallPtr& call : {calls.partly, calls.queued, calls.next_queued, calls.waiting}) {
    EXPECT_TRUE(call->ended_as(Outcome::kClosed));
  }
  EXPECT_FALSE(calls.partly->released()) << "a worker still reads it";
  EXPECT_FALSE(calls.running->done());
  EXPECT_EQ(polled(engine), Ready::kClosed);
  answer(engine, calls.batch);
  EXPECT_TRUE(calls.running->answered());
  EXPECT_TRUE(calls.partly->released());
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.counters.dropped, 4U);
  EXPECT_EQ(stats.counters.completed, 1U);
  EXPECT_EQ(stats.queued_items, 0U);
  EXPECT_EQ(stats.waiting_requests, 0);
}

TEST(EngineClose, IsIdempotentAndASecondCloseMayDropTheRest) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  close(engine, true);
  close(engine, true);
  EXPECT_FALSE(call->done());
  close(engine, false);
  EXPECT_TRUE(call->ended_as(Outcome::kClosed));
  close(engine, true);
  EXPECT_EQ(engine.stats().counters.dropped, 1U);
}

TEST(EngineClose, AbortAlsoEndsRunningRequests) {
  Engine engine(kByFour);
  AllPhases calls(engine);
  close(engine, true);
  abort(engine);
  for (const CallPtr& call : {calls.running, calls.partly, calls.queued, calls.next_queued, calls.waiting}) {
    EXPECT_TRUE(call->ended_as(Outcome::kClosed));
  }
  EXPECT_EQ(drained_by(engine, TimePoint{}), Wait::kTimeout) << "a batch is not back";
  answer(engine, calls.batch);
  EXPECT_TRUE(calls.running->released() && calls.partly->released());
  EXPECT_TRUE(calls.running->ended_as(Outcome::kClosed));
  EXPECT_EQ(drained_by(engine, TimePoint{}), Wait::kDone);
  abort(engine);
  EXPECT_EQ(engine.stats().counters.dropped, 5U);
}

TEST(EngineClose, AbortCanEndRequestsAsLost) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  abort(engine, Outcome::kLost);
  EXPECT_TRUE(call->ended_as(Outcome::kLost));
  EXPECT_EQ(engine.stats().counters.failed, 1U);
  EXPECT_FALSE(engine.closed());
  const CallPtr next = submitted(engine, 1);
  serve_all(engine);
  EXPECT_TRUE(next->answered());
}

TEST(EngineClose, WakesIdleWorkersAtOnce) {
  for (const bool drain : {true, false}) {
    Engine engine(kByFour);
    Worker first(engine);
    Worker second(engine);
    ASSERT_TRUE(idle_workers_are(engine, 2));
    close(engine, drain);
    EXPECT_TRUE(eventually([&] { return first.thread().finished() && second.thread().finished(); }));
    EXPECT_EQ(engine.stats().idle_workers, 0);
  }
}

TEST(EngineClose, WorkersThatWaitedForMoreRequestsServeTheirBatch) {
  Engine engine({.batch_size = 4, .max_latency = hours(1), .policy = PolicyKind::kWindow});
  Worker first(engine);
  Worker second(engine);
  ASSERT_TRUE(idle_workers_are(engine, 2));
  const CallPtr call = submitted(engine, 1);
  close(engine, true);
  EXPECT_TRUE(eventually([&] { return first.thread().finished() && second.thread().finished(); }));
  EXPECT_TRUE(call->answered());
}

TEST(EngineClose, ProducersThatWaitForRoomAreServedOrRefused) {
  for (const bool drain : {true, false}) {
    Engine engine(kByFour);
    const CallPtr first = submitted(engine, 8);
    const CallPtr second = make_call(8);
    ASSERT_EQ(submit(engine, second), Admission::kWaiting);
    std::atomic<Wait> result{Wait::kTimeout};
    Thread producer([&] {
      Sleeping sleeping;
      result = engine.wait_for_room(*second, sleeping.waiter(), TimePoint::max());
    });
    ASSERT_TRUE(eventually([&] { return producer.asleep(); }));
    close(engine, drain);
    if (drain) serve_all(engine);
    ASSERT_TRUE(eventually([&] { return producer.finished(); }));
    EXPECT_EQ(result, Wait::kDone);
    EXPECT_TRUE(drain ? second->answered() : second->ended_as(Outcome::kClosed));
  }
}

TEST(EngineDrain, ReturnsAtOnceIfThereAreNoRequests) {
  Engine engine(kByFour);
  EXPECT_EQ(drained_by(engine, TimePoint{}), Wait::kDone);
  const CallPtr call = submitted(engine, 1);
  EXPECT_EQ(drained_by(engine, TimePoint{}), Wait::kTimeout);
  serve_all(engine);
  EXPECT_EQ(drained_by(engine, TimePoint{}), Wait::kDone);
}

TEST(EngineDrain, WakesAllWaitingThreadsWhenTheLastBatchIsBack) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 8);
  Batch first = take(engine);
  Batch second = take(engine);
  std::deque<Thread> waiters;
  std::atomic<int> drained{0};
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] {
      if (drained_by(engine, TimePoint::max()) == Wait::kDone) ++drained;
    });
  }
  for (const Thread& waiter : waiters) ASSERT_TRUE(eventually([&] { return waiter.asleep(); }));
  close(engine, true);
  give_back(engine, first, Outcome::kLost);
  EXPECT_TRUE(call->ended_as(Outcome::kLost));
  EXPECT_EQ(drained, 0) << "all requests have ended, but one batch is not back";
  answer(engine, second);
  EXPECT_TRUE(eventually([&] { return drained == 3; }));
}

TEST(EngineDrain, EndsAtItsDeadlineOrBySignal) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  const TimePoint deadline = Clock::now() + milliseconds(1);
  EXPECT_EQ(drained_by(engine, deadline), Wait::kTimeout);
  EXPECT_GE(Clock::now(), deadline);
  std::atomic<Wait> result{Wait::kDone};
  Thread waiter([&] { result = drained_by(engine, TimePoint::max()); });
  ASSERT_TRUE(waiter.interrupt_until([&] { return waiter.finished(); }));
  EXPECT_EQ(result, Wait::kInterrupted);
  serve_all(engine);
}

}  // namespace
}  // namespace service_streamer::support
