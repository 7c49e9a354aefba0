#include "service_streamer/waiting/waiter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Wait = Completion::Wait;

constexpr std::size_t kFew = 2, kMany = 12;  // woken by the chain itself, or each by the one before

void publish_alone(Completion& completion) {
  WakeChain chain(1);
  chain.publish(completion);
  chain.wake();
}

// A thread that waits once, on a waiter that the test sees.
class Caller {
 public:
  explicit Caller(Completion& completion, TimePoint deadline = TimePoint::max())
      : thread_([this, &completion, deadline] { result_ = completion.wait(sleeping_.waiter(), deadline); }) {}

  bool asleep() const {
    return eventually([this] { return thread_.asleep(); });
  }
  bool returned() const { return thread_.finished(); }
  bool returns(Wait expected) const {
    return eventually([this] { return returned(); }) && result_ == expected;
  }
  Waiter& waiter() { return sleeping_.waiter(); }
  Thread& thread() { return thread_; }

 private:
  Sleeping sleeping_;
  std::atomic<Wait> result_{Wait::kInterrupted};
  Thread thread_;
};

// Callers that sleep, each on a completion of its own, and the chain that will end them.
class Callers {
 public:
  explicit Callers(std::size_t count, bool gathers = false) : completions_(count), chain_(count, gathers) {
    for (Completion& completion : completions_) {
      callers_.emplace_back(completion);
      EXPECT_TRUE(callers_.back().asleep());
    }
  }

  void publish_all() {
    for (Completion& completion : completions_) chain_.publish(completion);
  }
  WakeChain& chain() { return chain_; }
  Caller& operator[](std::size_t i) { return callers_[i]; }
  bool all_return() const {
    return std::all_of(callers_.begin(), callers_.end(),
                       [](const Caller& caller) { return caller.returns(Wait::kDone); });
  }

 private:
  std::deque<Completion> completions_;
  WakeChain chain_;
  std::deque<Caller> callers_;
};

TEST(WaiterPool, GivesEverybodyAnotherAndTakesThemBack) {
  Waiter& first = WaiterPool::acquire();
  Waiter& second = WaiterPool::acquire();
  EXPECT_NE(&first, &second);
  WaiterPool::release(second);
  EXPECT_EQ(&WaiterPool::acquire(), &second);
  WaiterPool::release(second);
  WaiterPool::release(first);
}

TEST(WaiterPool, NeverGivesOneToTwoThreads) {
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

TEST(Completion, AWaitForWhatIsDoneReturnsAtOnce) {
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

TEST(Completion, ACrowdOfThreadsIsWokenByOneEnd) {
  Completion completion;
  std::deque<Caller> crowd;
  for (int i = 0; i < 5; ++i) crowd.emplace_back(completion);
  for (const Caller& caller : crowd) ASSERT_TRUE(caller.asleep());
  publish_alone(completion);
  for (const Caller& caller : crowd) EXPECT_TRUE(caller.returns(Wait::kDone));
}

TEST(Completion, AnyOfACrowdMayGiveUpAndTheOthersAreStillWoken) {
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

TEST(Completion, ASignalInterruptsTheFirstSleeperAndTheCrowd) {
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

TEST(WakeChain, OfAFewWakesEachItself) {
  Callers callers(kFew);
  callers.publish_all();
  for (std::size_t i = 0; i < kFew; ++i) EXPECT_EQ(callers[i].waiter().next_to_wake, nullptr);
  callers.chain().wake();
  EXPECT_TRUE(callers.all_return());
}

TEST(WakeChain, LeavesEverybodyAsleepUntilItIsToldToWake) {
  for (const std::size_t count : {kFew, kMany}) {
    Callers callers(count);
    callers.publish_all();
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(callers[i].asleep());
      EXPECT_FALSE(callers[i].returned());
    }
    callers.chain().wake();
    EXPECT_TRUE(callers.all_return());
  }
}

TEST(WakeChain, LeavesAnOnlyCallerToWhoTakesHim) {
  Callers callers(1);
  EXPECT_EQ(callers.chain().take_only(), nullptr) << "nobody is published";
  callers.publish_all();
  Waiter* only = callers.chain().take_only();
  ASSERT_EQ(only, &callers[0].waiter());
  callers.chain().wake();
  EXPECT_TRUE(callers[0].asleep());
  EXPECT_FALSE(callers[0].returned());
  only->parker.unpark();
  EXPECT_TRUE(callers.all_return());
}

TEST(WakeChain, OfSeveralLeavesNobody) {
  for (const std::size_t count : {kFew, kMany}) {
    Callers callers(count);
    callers.publish_all();
    EXPECT_EQ(callers.chain().take_only(), nullptr);
    callers.chain().wake();
    EXPECT_TRUE(callers.all_return());
  }
}

TEST(WakeChain, OfManyWakesTheLastPublishedAndEachTheOneBefore) {
  Callers callers(kMany);
  callers.publish_all();
  EXPECT_EQ(callers[0].waiter().next_to_wake, nullptr);
  for (std::size_t i = 1; i < kMany; ++i) EXPECT_EQ(callers[i].waiter().next_to_wake, &callers[i - 1].waiter());
  callers.chain().wake();
  EXPECT_TRUE(callers.all_return());
}

TEST(WakeChain, WakesGatheredCallersInTwoChainsWhoseLastKnowIt) {
  Callers callers(kMany, true);
  callers.publish_all();
  EXPECT_EQ(callers.chain().gathered_chains(), 2U);
  for (std::size_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(callers[i].waiter().next_to_wake, i < 2 ? nullptr : &callers[i - 2].waiter());
    EXPECT_EQ(std::exchange(callers[i].waiter().ends_chain, false), i < 2);
  }
  callers.chain().wake();
  EXPECT_TRUE(callers.all_return());
}

TEST(WakeChain, OfAFewGathersNobody) {
  Callers callers(kFew, true);
  callers.publish_all();
  EXPECT_EQ(callers.chain().gathered_chains(), 0U);
  for (std::size_t i = 0; i < kFew; ++i) EXPECT_FALSE(callers[i].waiter().ends_chain);
  callers.chain().wake();
  EXPECT_TRUE(callers.all_return());
}

TEST(WakeChain, SkipsThoseWhomNobodyWaitsFor) {
  std::deque<Completion> unattended(kMany);
  Completion attended;
  Caller caller(attended);
  ASSERT_TRUE(caller.asleep());
  WakeChain chain(kMany + 1);
  chain.publish(attended);
  for (Completion& completion : unattended) {
    chain.publish(completion);
    EXPECT_TRUE(completion.done());
  }
  chain.wake();
  EXPECT_TRUE(caller.returns(Wait::kDone));
}

TEST(WakeChain, ALinkThatWakesEarlyHandsTheChainOn) {
  for (const std::size_t early : {kMany - 1, kMany / 2, std::size_t{0}}) {
    Callers callers(kMany);
    callers.publish_all();
    callers[early].waiter().parker.unpark();  // a late wake-up of an earlier sleep
    for (std::size_t i = 0; i <= early; ++i) EXPECT_TRUE(callers[i].returns(Wait::kDone));
    callers.chain().wake();
    EXPECT_TRUE(callers.all_return());
  }
}

TEST(WakeChain, ALinkWhoseDeadlinePassesHandsTheChainOn) {
  std::deque<Completion> completions(kMany);
  std::deque<Caller> callers;
  for (std::size_t i = 0; i + 1 < kMany; ++i) callers.emplace_back(completions[i]);
  for (const Caller& caller : callers) ASSERT_TRUE(caller.asleep());
  Caller& last = callers.emplace_back(completions[kMany - 1], Clock::now() + milliseconds(100));
  ASSERT_TRUE(eventually([&] { return last.thread().asleep() || last.returned(); }));
  WakeChain chain(kMany);
  for (Completion& completion : completions) chain.publish(completion);
  // No wake(): only the one with the deadline wakes by itself. (A slow machine may have let it go before.)
  if (!last.returns(Wait::kDone)) chain.wake();
  for (std::size_t i = 0; i + 1 < kMany; ++i) EXPECT_TRUE(callers[i].returns(Wait::kDone));
}

TEST(WakeChain, AThreadThatLeftBeforeTheEndIsNoLink) {
  Callers callers(kMany);
  Completion left_alone;
  Caller gone(left_alone, Clock::now() + microseconds(100));
  ASSERT_TRUE(gone.returns(Wait::kTimeout));
  callers.chain().publish(left_alone);
  callers.publish_all();
  EXPECT_EQ(callers[0].waiter().next_to_wake, nullptr);
  callers.chain().wake();
  EXPECT_TRUE(callers.all_return());
}

}  // namespace
}  // namespace service_streamer::support
