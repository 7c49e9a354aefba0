// One thread that waits for several workers and for deadlines: the methods that replace blocking waits.

#include <gtest/gtest.h>

#include <stdexcept>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using Ready = Engine::Ready;

constexpr EngineOptions kGreedy{.batch_size = 4, .policy = PolicyKind::kGreedy, .workers = 2, .max_queue = 8};

TimePoint far() {
  return Clock::now() + hours(1);
}

// Two workers that share one waiter.
struct Workers {
  explicit Workers(Engine& of) : engine(of) {}
  ~Workers() {
    engine.stop_waiting(first);
    engine.stop_waiting(second);
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  Ready query(Engine::IdleWorker& worker) { return engine.start_waiting(worker, reason, until); }
  bool woken() { return sleeping.waiter().parker.park(TimePoint{}) == Parker::Wake::kUnparked; }

  Engine& engine;
  Sleeping sleeping;
  CloseReason reason{};
  TimePoint until;
  Engine::IdleWorker first{sleeping.waiter()};
  Engine::IdleWorker second{sleeping.waiter()};
};

TEST(EngineWaiting, CountsAsIdleUntilItIsStopped) {
  Engine engine(kGreedy);
  Workers workers(engine);
  EXPECT_EQ(workers.query(workers.first), Ready::kNotYet);
  EXPECT_EQ(workers.until, TimePoint::max());
  EXPECT_EQ(workers.query(workers.first), Ready::kNotYet) << "may be called again";
  EXPECT_EQ(workers.query(workers.second), Ready::kNotYet);
  EXPECT_EQ(engine.stats().idle_workers, 2);
  engine.stop_waiting(workers.first);
  engine.stop_waiting(workers.first);
  EXPECT_EQ(engine.stats().idle_workers, 1);
}

TEST(EngineWaiting, ARequestIsReservedForTheMostRecentlyIdleWorker) {
  Engine engine(kGreedy);
  Workers workers(engine);
  workers.query(workers.first);
  workers.query(workers.second);
  EXPECT_EQ(workers.query(workers.first), Ready::kNotYet) << "a repeated call does not make it the most recent";
  EXPECT_FALSE(workers.woken());
  const CallPtr call = submitted(engine, 1);
  EXPECT_TRUE(workers.woken());
  EXPECT_EQ(workers.query(workers.first), Ready::kNotYet) << "it is reserved for the other worker";
  ASSERT_EQ(workers.query(workers.second), Ready::kBatch);
  Batch batch = cut(engine, workers.reason);
  answer(engine, batch);
  EXPECT_TRUE(call->answered());
}

TEST(EngineWaiting, ARequestBeforeTheWaitIsTakenAtOnce) {
  Engine engine(kGreedy);
  Workers workers(engine);
  const CallPtr call = submitted(engine, 1);
  ASSERT_EQ(workers.query(workers.first), Ready::kBatch);
  EXPECT_EQ(engine.stats().idle_workers, 0);
  EXPECT_EQ(workers.query(workers.second), Ready::kNotYet);
  Batch batch = cut(engine, workers.reason);
  answer(engine, batch);
}

TEST(EngineWaiting, ABatchOfAWorkerThatStopsGoesToAnotherWorker) {
  Engine engine(kGreedy);
  Workers workers(engine);
  workers.query(workers.first);
  workers.query(workers.second);
  const CallPtr call = submitted(engine, 1);
  EXPECT_TRUE(workers.woken());
  engine.stop_waiting(workers.second);  // its process died
  EXPECT_TRUE(workers.woken());
  ASSERT_EQ(workers.query(workers.first), Ready::kBatch);
  Batch batch = cut(engine, workers.reason);
  answer(engine, batch);

  const CallPtr next = submitted(engine, 1);
  ASSERT_EQ(workers.query(workers.first), Ready::kBatch) << "the reservation was released";
  batch = cut(engine, workers.reason);
  answer(engine, batch);
}

TEST(EngineWaiting, ABatchOfTheOnlyWorkerThatStopsStaysForTheNextWorker) {
  Engine engine(kGreedy);
  Workers workers(engine);
  workers.query(workers.first);
  const CallPtr call = submitted(engine, 1);
  engine.stop_waiting(workers.first);
  EXPECT_EQ(engine.stats().queued_requests, 1);
  ASSERT_EQ(workers.query(workers.second), Ready::kBatch);
  Batch batch = cut(engine, workers.reason);
  answer(engine, batch);
}

TEST(EngineWaiting, WhatAReservedBatchLeavesIsNoFullBatch) {
  Engine engine({.batch_size = 4, .max_latency = hours(1), .policy = PolicyKind::kWindow, .workers = 2});
  Workers workers(engine);
  const CallPtr full = submitted(engine, 4);
  ASSERT_EQ(workers.query(workers.first), Ready::kBatch);
  const CallPtr next = submitted(engine, 1);
  EXPECT_EQ(workers.query(workers.second), Ready::kNotYet);
  engine.stop_waiting(workers.second);
  Batch batch = cut(engine, workers.reason);
  answer(engine, batch);
  EXPECT_TRUE(full->answered());
  close(engine, false);
  EXPECT_TRUE(next->done());
}

TEST(EngineWaiting, TellsWhenABatchIsDueAndWakesForAnEarlierTime) {
  Engine engine({.batch_size = 4, .max_latency = hours(1), .policy = PolicyKind::kWindow, .workers = 2});
  Workers workers(engine);
  workers.query(workers.first);
  const CallPtr call = submitted(engine, 1);
  EXPECT_TRUE(workers.woken()) << "it would sleep for ever";
  EXPECT_EQ(workers.query(workers.first), Ready::kNotYet);
  EXPECT_EQ(workers.until, call->arrived + hours(1));
  const CallPtr rest = submitted(engine, 3);
  EXPECT_TRUE(workers.woken());
  ASSERT_EQ(workers.query(workers.first), Ready::kBatch);
  EXPECT_EQ(workers.reason, CloseReason::kFull);
  Batch batch = cut(engine, workers.reason);
  EXPECT_EQ(batch.items, 4U);
  answer(engine, batch);
}

TEST(EngineWaiting, CloseWakesTheWaiter) {
  Engine engine(kGreedy);
  Workers workers(engine);
  workers.query(workers.first);
  close(engine, true);
  EXPECT_TRUE(workers.woken());
  EXPECT_EQ(workers.query(workers.first), Ready::kClosed);
  EXPECT_EQ(engine.stats().idle_workers, 0);
}

TEST(EngineWaiting, TellsOfRoomWithoutBlocking) {
  Engine engine(kGreedy);
  Workers workers(engine);
  const CallPtr large = submitted(engine, 8);
  const CallPtr waiting = make_call(1);
  EXPECT_EQ(submit(engine, waiting), Engine::Admission::kWaiting);
  EXPECT_FALSE(engine.has_room(*waiting, workers.sleeping.waiter()));
  Batch batch = take(engine);
  EXPECT_TRUE(workers.woken());
  EXPECT_TRUE(engine.has_room(*waiting, workers.sleeping.waiter()));
  answer(engine, batch);
  serve_all(engine);
  EXPECT_TRUE(waiting->answered());
}

TEST(EngineWaiting, ARequestThatAnotherEngineAcceptedIsNotRefused) {
  EngineOptions rejecting = kGreedy;
  rejecting.overflow = Overflow::kReject;
  Engine engine(rejecting);
  const CallPtr large = submitted(engine, 8);
  EXPECT_EQ(submit(engine, make_call(1)), Engine::Admission::kFull);
  const CallPtr accepted = make_call(1);
  EXPECT_EQ(submit(engine, accepted, true), Engine::Admission::kWaiting);
  serve_all(engine);
  EXPECT_TRUE(accepted->answered());
}

TEST(EngineWaiting, WatchDeadlinesExpiresRequestsAndReturnsTheNextDeadline) {
  Engine engine(kGreedy);
  Workers workers(engine);
  Waiter& waiter = workers.sleeping.waiter();
  EndedRequests ended;
  EXPECT_EQ(engine.deadline_timer().watch(waiter, ended), TimePoint::max());
  const CallPtr watched = submitted(engine, 1, {.deadline = far(), .watched = true});
  EXPECT_FALSE(workers.woken()) << "its caller watches it";
  const CallPtr later = submitted(engine, 1, {.deadline = far()});
  EXPECT_TRUE(workers.woken());
  const CallPtr last = submitted(engine, 1, {.deadline = far() + hours(1)});
  EXPECT_FALSE(workers.woken());
  EXPECT_EQ(engine.deadline_timer().watch(waiter, ended), later->deadline);
  const CallPtr late = submitted(engine, 1, {.deadline = Clock::now() + milliseconds(5)});
  EXPECT_TRUE(workers.woken());
  pass_time_until(late->deadline);
  EXPECT_EQ(engine.deadline_timer().watch(waiter, ended), later->deadline);
  publish(ended);
  EXPECT_TRUE(late->ended_as(Outcome::kExpired));
  EXPECT_FALSE(later->done());

  engine.deadline_timer().stop_watching(waiter);
  const CallPtr unseen = submitted(engine, 1, {.deadline = Clock::now()});
  EXPECT_FALSE(workers.woken());
  serve_all(engine);
}

TEST(EngineWaiting, TheNumberOfWorkersMayChange) {
  Engine engine(kGreedy);
  engine.set_workers(5);
  EXPECT_EQ(engine.stats().workers, 5);
  EXPECT_THROW(engine.set_workers(0), std::invalid_argument);
  EXPECT_EQ(engine.options().workers, 5);
}

}  // namespace
}  // namespace service_streamer::support
