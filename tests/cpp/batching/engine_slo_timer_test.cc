// A target of the engine and time that passes without events, and a target that changes.

#include <gtest/gtest.h>

#include "batching/engine_timer_testing.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr Duration kTarget = milliseconds(200);

constexpr EngineOptions with(Duration slo) {
  return {.batch_size = 4, .policy = PolicyKind::kGreedy, .slo = slo};
}

bool is_refused_soon(Call& call) {
  return wait_for(call, Clock::now() + kPatience) == Completion::Wait::kDone && call.outcome == Outcome::kRefused;
}

// An engine whose worker never gives its batch back, and a request in the queue.
struct Hung {
  explicit Hung(Duration slo) : engine(with(slo)), running(submitted(engine, 1)), batch(take(engine)) {
    queued = submitted(engine, 1);
  }
  ~Hung() {
    answer(engine, batch);
    abort(engine);
  }
  Hung(const Hung&) = delete;
  Hung& operator=(const Hung&) = delete;

  Engine engine;
  CallPtr running;
  Batch batch;
  CallPtr queued;
};

TEST(EngineSloTimer, ARequestBehindAHungWorkerEndsWithoutAnotherEvent) {
  Hung hung(kTarget);
  const Timer timer(hung.engine);
  EXPECT_TRUE(is_refused_soon(*hung.queued));
  EXPECT_GE(hung.queued->ended - hung.queued->arrived, kTarget / 2);
  EXPECT_FALSE(hung.running->done());
  EXPECT_EQ(hung.engine.stats().counters.rejected, 1U);
}

TEST(EngineSloTimer, AThreadThatAlsoWaitsForOtherEventsIsToldWhen) {
  Hung hung(kTarget);
  Sleeping sleeping;
  EndedRequests ended;
  const TimePoint until = hung.engine.deadline_timer().watch(sleeping.waiter(), ended);
  EXPECT_GT(until, hung.queued->arrived);
  EXPECT_LE(until, hung.queued->arrived + kTarget + milliseconds(1));
  pass_time_until(until);
  hung.engine.deadline_timer().watch(sleeping.waiter(), ended);
  publish(ended);
  EXPECT_TRUE(hung.queued->ended_as(Outcome::kRefused));
  hung.engine.deadline_timer().stop_watching(sleeping.waiter());
}

TEST(EngineSloTimer, RequestsSeldomWakeTheTimer) {
  Engine engine(with(hours(1)));
  const Timer timer(engine);
  ASSERT_TRUE(timer.asleep());
  for (int i = 0; i < 200; ++i) {
    const CallPtr call = submitted(engine, 1);
    serve_all(engine);
    EXPECT_TRUE(call->answered());
  }
  EXPECT_TRUE(timer.asleep());
  EXPECT_LE(timer.wake_ups(), 2);
}

TEST(EngineSloTimer, AnIdleTimerSleepsForEver) {
  Engine engine(with(milliseconds(1)));
  const Timer timer(engine);
  const CallPtr call = submitted(engine, 1);
  serve_all(engine);
  EXPECT_TRUE(come_to_rest([&] { return timer.wake_ups(); }, [&] { return timer.asleep(); }, milliseconds(20)));
}

TEST(EngineSloTimer, ATargetThatIsGivenLaterAppliesToQueuedRequests) {
  Hung hung(Duration::zero());
  const Timer timer(hung.engine);
  ASSERT_TRUE(timer.asleep());
  EXPECT_FALSE(hung.engine.deadline_timer().has_target());
  hung.engine.configure({.slo = milliseconds(1)});
  EXPECT_TRUE(hung.engine.deadline_timer().has_target());
  EXPECT_TRUE(is_refused_soon(*hung.queued));
}

TEST(EngineSloTimer, ATargetCanBeRemoved) {
  Hung hung(kTarget);
  hung.engine.configure({.slo = Duration::zero()});
  EXPECT_FALSE(hung.engine.deadline_timer().has_target());
  EXPECT_EQ(hung.engine.stats().batch_limit, 4U);
  pass_time_until(hung.queued->arrived + kTarget + milliseconds(1));
  const CallPtr late = submitted(hung.engine, 1);
  expire(hung.engine);
  EXPECT_FALSE(hung.queued->done());
  serve_all(hung.engine);
  EXPECT_TRUE(hung.queued->answered() && late->answered());
}

}  // namespace
}  // namespace service_streamer::support
