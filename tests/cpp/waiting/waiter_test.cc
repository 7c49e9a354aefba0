#include "service_streamer/waiting/waiter.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "waiting/waiter_testing.h"

namespace service_streamer::support {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Wait = Completion::Wait;

void publish_alone(Completion& completion) {
  WakeQueue::instance().publish(completion);
  WakeQueue::instance().wake();
}

TEST(WaiterPool, GivesDifferentWaitersAndReusesThem) {
  Waiter& first = WaiterPool::acquire();
  Waiter& second = WaiterPool::acquire();
  EXPECT_NE(&first, &second);
  WaiterPool::release(second);
  EXPECT_EQ(&WaiterPool::acquire(), &second);
  WaiterPool::release(second);
  WaiterPool::release(first);
}

TEST(WaiterPool, NeverGivesOneWaiterToTwoThreads) {
  std::array<std::atomic<Waiter*>, 4> held{};
  std::vector<std::unique_ptr<Thread>> threads;
  for (auto& mine : held) {
    threads.push_back(std::make_unique<Thread>([&] {
      for (int i = 0; i < 5'000 / kStressShare; ++i) {
        Waiter& waiter = WaiterPool::acquire();
        mine = &waiter;
        for (const auto& other : held) EXPECT_TRUE(&other == &mine || other != &waiter);
        mine = nullptr;
        WaiterPool::release(waiter);
      }
    }));
  }
}

TEST(Completion, AWaitAfterTheEndReturnsAtOnce) {
  Completion completion;
  EXPECT_FALSE(completion.done());
  publish_alone(completion);
  EXPECT_TRUE(completion.done());
  Sleeping sleeping;
  EXPECT_EQ(completion.wait(sleeping.waiter(), TimePoint::max()), Wait::kDone);
  EXPECT_EQ(completion.wait(sleeping.waiter(), TimePoint{}), Wait::kDone);
}

TEST(Completion, AWaitEndsAtItsDeadlineAndCanBeRepeated) {
  Completion completion;
  Sleeping sleeping;
  for (int i = 0; i < 3; ++i) {
    const TimePoint deadline = Clock::now() + microseconds(200);
    EXPECT_EQ(completion.wait(sleeping.waiter(), deadline), Wait::kTimeout);
    EXPECT_GE(Clock::now(), deadline);
  }
  publish_alone(completion);
  EXPECT_EQ(completion.wait(sleeping.waiter(), Clock::now()), Wait::kDone);
}

TEST(Completion, PublishingWakesTheSleeper) {
  Completion completion;
  Caller caller(completion);
  ASSERT_TRUE(caller.asleep());
  publish_alone(completion);
  EXPECT_TRUE(caller.returns(Wait::kDone));
}

TEST(Completion, AWakeUpMeantForAnEarlierSleepDoesNotEndTheWait) {
  Completion completion;
  Caller caller(completion);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(caller.asleep());
    caller.waiter().parker.unpark();
  }
  EXPECT_FALSE(caller.returned());
  publish_alone(completion);
  EXPECT_TRUE(caller.returns(Wait::kDone));
}

TEST(Completion, TheEndWakesAllThreadsThatWait) {
  Completion completion;
  std::deque<Caller> crowd;
  for (int i = 0; i < 5; ++i) crowd.emplace_back(completion);
  for (const Caller& caller : crowd) ASSERT_TRUE(caller.asleep());
  publish_alone(completion);
  for (const Caller& caller : crowd) EXPECT_TRUE(caller.returns(Wait::kDone));
}

TEST(Completion, AnyThreadMayGiveUpAndTheOthersAreStillWoken) {
  Completion completion;
  Caller first(completion, Clock::now() + milliseconds(20));
  Caller second(completion);
  Caller third(completion, Clock::now() + milliseconds(20));
  EXPECT_TRUE(first.returns(Wait::kTimeout));
  EXPECT_TRUE(third.returns(Wait::kTimeout));
  EXPECT_FALSE(second.returned());
  Caller fourth(completion);
  ASSERT_TRUE(fourth.asleep());
  publish_alone(completion);
  EXPECT_TRUE(second.returns(Wait::kDone));
  EXPECT_TRUE(fourth.returns(Wait::kDone));
}

TEST(Completion, ASignalInterruptsTheFirstThreadAndTheOthers) {
  Completion completion;
  Caller first(completion);
  ASSERT_TRUE(first.asleep());
  Caller second(completion, Clock::now() + std::chrono::hours(1));
  ASSERT_TRUE(second.asleep());
  ASSERT_TRUE(first.thread().interrupt_until([&] { return first.returned(); }));
  EXPECT_TRUE(first.returns(Wait::kInterrupted));
  EXPECT_FALSE(second.returned());
  ASSERT_TRUE(second.thread().interrupt_until([&] { return second.returned(); }));
  EXPECT_TRUE(second.returns(Wait::kInterrupted));
  EXPECT_FALSE(completion.done());
}

TEST(Completion, CannotBeEnteredWhenItIsDoneOrAnotherThreadHasEntered) {
  Completion completion;
  Sleeping first;
  Sleeping second;
  EXPECT_TRUE(completion.enter(first.waiter()));
  EXPECT_FALSE(completion.enter(second.waiter()));
  Completion finished;
  finished.finish();
  EXPECT_TRUE(finished.done());
  EXPECT_FALSE(finished.enter(second.waiter()));
  EXPECT_EQ(finished.wait(second.waiter(), TimePoint::max()), Wait::kDone);
}

}  // namespace
}  // namespace service_streamer::support
