// Workers that wait for batches: which worker a request wakes, which stay asleep, and how they sleep.

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <tuple>
#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using Ready = Engine::Ready;

constexpr EngineOptions kGreedy{.batch_size = 4, .policy = PolicyKind::kGreedy, .workers = 3};

// A thread that calls wait_for_batch() once, and then waits for the test.
class SlowWorker {
 public:
  explicit SlowWorker(Engine& engine)
      : engine_(engine), thread_([this] {
          Sleeping sleeping;
          ready_ = engine_.wait_for_batch(sleeping.waiter(), reason_);
        }) {}

  // Ends the wait if the test has failed.
  ~SlowWorker() { close(engine_, false); }
  SlowWorker(const SlowWorker&) = delete;
  SlowWorker& operator=(const SlowWorker&) = delete;

  bool returned() const { return thread_.finished(); }
  bool returns(Ready expected) const {
    return eventually([this] { return returned(); }) && ready_ == expected;
  }
  // What the worker does next.
  Batch cut_batch() { return cut(engine_, reason_); }
  bool asleep() const {
    return eventually([this] { return thread_.asleep(); });
  }
  Thread& thread() { return thread_; }

 private:
  Engine& engine_;
  CloseReason reason_{};
  std::atomic<Ready> ready_{Ready::kNotYet};
  Thread thread_;
};

// Workers that became idle one after another.
class IdleWorkers {
 public:
  IdleWorkers(Engine& engine, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      workers_.emplace_back(engine);
      EXPECT_TRUE(idle_workers_are(engine, static_cast<int>(i) + 1));
      EXPECT_TRUE(workers_.back().asleep());
    }
  }
  SlowWorker& operator[](std::size_t i) { return workers_[i]; }

 private:
  std::deque<SlowWorker> workers_;
};

TEST(EngineWorkers, TheMostRecentlyIdleWorkerIsWokenFirst) {
  Engine engine(kGreedy);
  IdleWorkers workers(engine, 3);
  std::vector<CallPtr> calls;
  std::vector<Batch> batches;
  for (const std::size_t next : {2U, 1U, 0U}) {
    calls.push_back(submitted(engine, 4));
    ASSERT_TRUE(workers[next].returns(Ready::kBatch));
    batches.push_back(workers[next].cut_batch());
    EXPECT_EQ(engine.stats().idle_workers, static_cast<int>(next));
  }
  for (Batch& batch : batches) answer(engine, batch);
}

TEST(EngineWorkers, ASubmitMayLeaveTheWakeUpToItsThread) {
  Engine engine(kGreedy);
  IdleWorkers workers(engine, 1);
  const CallPtr call = make_call(1);
  call->accepted = true;
  call->kept = call;
  WorkerWake later;
  ASSERT_EQ(engine.submit(*call, &later), Engine::Admission::kQueued);
  EXPECT_TRUE(workers[0].asleep());
  EXPECT_FALSE(workers[0].returned());
  later.run();
  ASSERT_TRUE(workers[0].returns(Ready::kBatch));
  Batch batch = workers[0].cut_batch();
  answer(engine, batch);
}

// A model that takes no time, and a thread that forwards requests: the callers of the last batch are woken before the
// worker takes the next one.
TEST(EngineWorkers, AFastModelAndAForwarderWaitForTheCallersThatAreBeingWoken) {
  WakeQueue& queue = WakeQueue::instance();
  using Behind = IdleWorker::Behind;
  for (const auto& [policy, behind, waits] :
       {std::tuple(PolicyKind::kAdaptive, Behind::kAllOfFast, true),
        std::tuple(PolicyKind::kGreedy, Behind::kAllOfFast, false),
        std::tuple(PolicyKind::kGreedy, Behind::kFirst, true), std::tuple(PolicyKind::kGreedy, Behind::kNone, false)}) {
    Engine engine({.batch_size = 4, .policy = policy});
    CloseReason reason{};
    Ready ready{};
    const Thread worker([&, how = behind] {
      Sleeping sleeping;
      ready = engine.wait_for_batch(sleeping.waiter(), reason, {.behind = how});
    });
    ASSERT_TRUE(idle_workers_are(engine, 1));
    Completion first, second;
    Sleeping callers[2];
    ASSERT_TRUE(first.enter(callers[0].waiter()) && second.enter(callers[1].waiter()));
    queue.publish(first);
    queue.publish(second);
    queue.wake();
    const CallPtr call = submitted(engine, 1);
    if (waits) {
      EXPECT_TRUE(eventually([&] { return worker.asleep(); }));
      EXPECT_FALSE(worker.finished());
      queue.pass(callers[0].waiter());
      EXPECT_FALSE(worker.finished());
      queue.pass(callers[1].waiter());
    }
    EXPECT_TRUE(eventually([&] { return worker.finished(); }));
    ASSERT_EQ(ready, Ready::kBatch);
    Batch batch = cut(engine, reason);
    answer(engine, batch);
  }
}

TEST(EngineWorkers, ABatchWakesOneWorkerForAnyNumberOfRequests) {
  Engine engine(kGreedy);
  IdleWorkers workers(engine, 3);
  std::vector<CallPtr> calls;
  for (int i = 0; i < 4; ++i) {
    calls.push_back(submitted(engine, 1));
    EXPECT_EQ(engine.stats().idle_workers, 2) << "the woken worker takes a full batch";
  }
  calls.push_back(submitted(engine, 1));
  EXPECT_EQ(engine.stats().idle_workers, 1) << "more items than one batch can have";
  ASSERT_TRUE(workers[2].returns(Ready::kBatch));
  ASSERT_TRUE(workers[1].returns(Ready::kBatch));
  EXPECT_FALSE(workers[0].returned());
  Batch first = workers[2].cut_batch();
  Batch second = workers[1].cut_batch();
  EXPECT_EQ(first.items, 4U);
  EXPECT_EQ(second.items, 1U);
  answer(engine, first);
  answer(engine, second);
}

TEST(EngineWorkers, ALargeRequestWakesOneWorkerAfterAnother) {
  Engine engine(kGreedy);
  IdleWorkers workers(engine, 3);
  const CallPtr call = submitted(engine, 12);
  std::vector<Batch> batches;
  for (const std::size_t next : {2U, 1U, 0U}) {
    ASSERT_TRUE(workers[next].returns(Ready::kBatch));
    batches.push_back(workers[next].cut_batch());
  }
  for (Batch& batch : batches) answer(engine, batch);
  EXPECT_TRUE(call->answered());
}

TEST(EngineWorkers, AfterAWorkerFindsNoItemsLaterRequestsAreServed) {
  Engine engine(kGreedy);
  IdleWorkers workers(engine, 1);
  const CallPtr cancelled = submitted(engine, 1);
  ASSERT_TRUE(workers[0].returns(Ready::kBatch));
  EXPECT_TRUE(cancel(engine, *cancelled));
  EXPECT_EQ(workers[0].cut_batch().items, 0U);
  IdleWorkers fresh(engine, 1);
  const CallPtr next = submitted(engine, 1);
  ASSERT_TRUE(fresh[0].returns(Ready::kBatch));
  Batch batch = fresh[0].cut_batch();
  answer(engine, batch);
  EXPECT_TRUE(next->answered());
}

TEST(EngineWorkers, AWindowWakesOneWorkerWhenItEnds) {
  Engine engine({.batch_size = 4, .max_latency = milliseconds(10), .policy = PolicyKind::kWindow, .workers = 2});
  IdleWorkers workers(engine, 2);
  const CallPtr call = submitted(engine, 1);
  ASSERT_TRUE(workers[1].returns(Ready::kBatch));
  Batch batch = workers[1].cut_batch();
  EXPECT_GE(batch.age, milliseconds(10));
  EXPECT_FALSE(workers[0].returned());
  answer(engine, batch);
}

TEST(EngineWorkers, AnInterruptedWorkerLeavesTheBatchToAnotherWorker) {
  Engine engine({.batch_size = 4, .max_latency = milliseconds(500), .policy = PolicyKind::kWindow, .workers = 2});
  IdleWorkers workers(engine, 2);
  const CallPtr call = submitted(engine, 1);
  ASSERT_TRUE(workers[1].thread().interrupt_until([&] { return workers[1].returned(); }));
  ASSERT_TRUE(workers[1].returns(Ready::kInterrupted) || workers[1].returns(Ready::kBatch));
  if (workers[1].returns(Ready::kInterrupted)) {
    EXPECT_TRUE(workers[0].returns(Ready::kBatch)) << "no worker wakes when the window ends";
  }
  if (workers[0].returned()) {
    Batch batch = workers[0].cut_batch();
    answer(engine, batch);
  } else {
    abandon(engine, *call);
  }
}

TEST(EngineWorkers, ConfigureMakesIdleWorkersAskTheNewPolicy) {
  const EngineOptions window{.batch_size = 4, .max_latency = hours(1), .policy = PolicyKind::kWindow, .workers = 2};
  for (const EngineChange& changed : {EngineChange{.policy = PolicyKind::kGreedy}, EngineChange{.batch_size = 2}}) {
    Engine engine(window);
    IdleWorkers workers(engine, 2);
    const long before = workers[1].thread().voluntary_switches();
    const CallPtr call = submitted(engine, 2);
    ASSERT_TRUE(workers[1].thread().slept_again_since(before)) << "it sleeps until the end of the window";
    engine.configure(changed);
    ASSERT_TRUE(eventually([&] { return workers[0].returned() || workers[1].returned(); }));
    Batch batch = workers[workers[0].returned() ? 0 : 1].cut_batch();
    answer(engine, batch);
    EXPECT_TRUE(call->answered());
  }
}

TEST(EngineWorkers, TheLastBatchOfAClosedEngineEndsTheOtherWorkers) {
  Engine engine(kGreedy);
  IdleWorkers workers(engine, 2);
  const CallPtr call = submitted(engine, 1);
  ASSERT_TRUE(workers[1].returns(Ready::kBatch));
  const long before = workers[0].thread().voluntary_switches();
  close(engine, true);
  ASSERT_TRUE(workers[0].thread().slept_again_since(before)) << "the batch is reserved for the other worker";
  EXPECT_FALSE(workers[0].returned());
  Batch batch = workers[1].cut_batch();
  EXPECT_TRUE(workers[0].returns(Ready::kClosed));
  answer(engine, batch);
}

TEST(EngineWorkers, ASignalInterruptsAnIdleWorker) {
  Engine engine(kGreedy);
  IdleWorkers workers(engine, 2);
  ASSERT_TRUE(workers[1].thread().interrupt_until([&] { return workers[1].returned(); }));
  EXPECT_TRUE(workers[1].returns(Ready::kInterrupted));
  EXPECT_EQ(engine.stats().idle_workers, 1) << "it no longer counts as idle";
  const CallPtr call = submitted(engine, 1);
  EXPECT_TRUE(workers[0].returns(Ready::kBatch));
  Batch batch = workers[0].cut_batch();
  answer(engine, batch);
}

TEST(EngineWorkers, AWaitEndsAtItsDeadline) {
  Engine engine(kGreedy);
  Sleeping sleeping;
  CloseReason reason{};
  const TimePoint deadline = Clock::now() + milliseconds(1);
  EXPECT_EQ(engine.wait_for_batch(sleeping.waiter(), reason, {.deadline = deadline}), Ready::kNotYet);
  EXPECT_GE(Clock::now(), deadline);
  EXPECT_EQ(engine.stats().idle_workers, 0);
  close(engine, true);
  EXPECT_EQ(engine.wait_for_batch(sleeping.waiter(), reason, {.deadline = deadline}), Ready::kClosed);
  EXPECT_EQ(engine.wait_for_batch(sleeping.waiter(), reason, {.deadline = deadline, .when_closed = false}),
            Ready::kNotYet);
}

TEST(EngineWorkers, ARingEndsTheWaitUnlessABatchIsDue) {
  Engine engine(kGreedy);
  Sleeping sleeping;
  CloseReason reason{};
  std::atomic<bool> rung{false};
  std::atomic<Ready> ready{Ready::kBatch};
  Thread worker([&] { ready = engine.wait_for_batch(sleeping.waiter(), reason, {.rung = &rung}); });
  EXPECT_TRUE(eventually([&] { return worker.asleep(); }));
  rung = true;
  sleeping.waiter().parker.unpark();
  ASSERT_TRUE(eventually([&] { return worker.finished(); }));
  EXPECT_EQ(ready, Ready::kNotYet);
  EXPECT_EQ(engine.stats().idle_workers, 0);
  const CallPtr call = submitted(engine, 1);
  ASSERT_EQ(engine.wait_for_batch(sleeping.waiter(), reason, {.rung = &rung}), Ready::kBatch);
  Batch batch = cut(engine, reason);
  answer(engine, batch);
}

// There is no timed wake-up: an idle thread does not run, even for much longer than any delay of the engine.
TEST(EngineWorkers, IdleWorkersAndTimerSleepWithoutWaking) {
  for (const PolicyKind policy : {PolicyKind::kAdaptive, PolicyKind::kGreedy, PolicyKind::kWindow}) {
    Engine engine({.batch_size = 4, .max_latency = milliseconds(1), .policy = policy, .workers = 2});
    Thread timer([&] {
      Sleeping sleeping;
      while (engine.deadline_timer().wait(sleeping.waiter()) != DeadlineTimer::Ready::kClosed) expire(engine);
    });
    Worker first(engine);  // its destructor closes the engine, also for the timer
    Worker second(engine);
    for (int i = 0; i < 50; ++i) {
      const CallPtr call = submitted(engine, 1, {.deadline = Clock::now() + hours(1)});
      ASSERT_EQ(wait_for(*call), Completion::Wait::kDone);
    }
    ASSERT_TRUE(idle_workers_are(engine, 2));
    const auto switches = [&] {
      return std::array<long, 3>{first.thread().voluntary_switches(), second.thread().voluntary_switches(),
                                 timer.voluntary_switches()};
    };
    const auto asleep = [&] { return first.thread().asleep() && second.thread().asleep() && timer.asleep(); };
    // At most one last linger may end.
    EXPECT_TRUE(come_to_rest(switches, asleep, milliseconds(50))) << to_string(policy);
    EXPECT_GT(switches()[0] + switches()[1], 0);
  }
}

TEST(EngineWorkers, AllWorkersRunIfThereAreEnoughRequests) {
  Engine engine(kGreedy);
  std::atomic<int> together{0};
  const auto meet = [&](Engine& of, Batch& batch) {
    ++together;
    EXPECT_TRUE(eventually([&] { return together >= 3; }));
    answer(of, batch);
  };
  Worker first(engine, meet);
  Worker second(engine, meet);
  Worker third(engine, meet);
  ASSERT_TRUE(idle_workers_are(engine, 3));
  const CallPtr call = submitted(engine, 12);
  EXPECT_EQ(wait_for(*call), Completion::Wait::kDone);
  EXPECT_TRUE(call->answered());
}

}  // namespace
}  // namespace service_streamer::support
