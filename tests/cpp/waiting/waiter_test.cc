#include "service_streamer/waiting/waiter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Wait = Completion::Wait;

constexpr std::size_t kFew = 4, kMany = 12;  // all woken at once, or not

void publish_alone(Completion& completion) {
  WakeChain chain;
  chain.publish(completion);
  chain.wake();
}

// A thread that waits once, on a waiter that the test sees.
class Caller {
 public:
  explicit Caller(Completion& completion, TimePoint deadline = TimePoint::max())
      : thread_([this, &completion, deadline] {
          result_ = completion.wait(waiter_, deadline);
          WaiterPool::release(waiter_);
        }) {}

  bool asleep() const {
    return eventually([this] { return thread_.asleep(); });
  }
  bool returned() const { return thread_.finished(); }
  bool returns(Wait expected) const {
    return eventually([this] { return returned(); }) && result_ == expected;
  }
  Waiter& waiter() { return waiter_; }
  Thread& thread() { return thread_; }

 private:
  Waiter& waiter_ = WaiterPool::acquire();
  std::atomic<Wait> result_{Wait::kInterrupted};
  Thread thread_;
};

// Callers that sleep, each on a completion of its own, and the chain that will end them.
class Callers {
 public:
  explicit Callers(std::size_t count) : completions_(count) {
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

TEST(WakeChain, WakesAFewAndTheNextInOrderWhenOneLeaves) {
  std::deque<Completion> completions(kMany);
  std::array<std::atomic<bool>, kMany> woken{};
  std::array<std::atomic<bool>, kMany> may_leave{};
  std::deque<Thread> threads;
  for (std::size_t i = 0; i < kMany; ++i) {
    threads.emplace_back([&, i] {
      Sleeping sleeping;
      completions[i].wait(sleeping.waiter(), TimePoint::max());
      woken.at(i) = true;
      while (!may_leave.at(i)) may_leave.at(i).wait(false);
    });
    ASSERT_TRUE(eventually([&] { return threads[i].asleep(); }));
  }
  WakeChain chain;
  for (Completion& completion : completions) chain.publish(completion);
  chain.wake();
  for (std::size_t i = 0; i < kMany; ++i) {
    EXPECT_TRUE(eventually([&] { return woken.at(i).load(); }));
    if (i + 1 < kFew) continue;
    EXPECT_EQ(std::count(woken.begin(), woken.end(), true), static_cast<std::ptrdiff_t>(i + 1));
    may_leave.at(i + 1 - kFew) = true;
    may_leave.at(i + 1 - kFew).notify_one();
  }
  for (std::atomic<bool>& leave : may_leave) {
    leave = true;
    leave.notify_one();
  }
}

TEST(WakeChain, AThreadThatHasEnteredBeforeTheEndWaitsForItsTurn) {
  Completion completion;
  Sleeping sleeping;
  ASSERT_TRUE(completion.enter(sleeping.waiter()));
  WakeChain chain;
  chain.publish(completion);
  ASSERT_TRUE(completion.done());
  Thread thread([&] { EXPECT_EQ(completion.wait(sleeping.waiter(), TimePoint::max(), true), Wait::kDone); });
  ASSERT_TRUE(eventually([&] { return thread.asleep(); }));
  EXPECT_FALSE(thread.finished());
  chain.wake();
  EXPECT_TRUE(eventually([&] { return thread.finished(); }));
}

TEST(Completion, CannotBeEnteredWhenItIsDoneOrAnotherThreadCameFirst) {
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

TEST(WakeChain, SkipsThoseWhomNobodyWaitsFor) {
  std::deque<Completion> unattended(kMany);
  Completion attended;
  Caller caller(attended);
  ASSERT_TRUE(caller.asleep());
  WakeChain chain;
  chain.publish(attended);
  for (Completion& completion : unattended) {
    chain.publish(completion);
    EXPECT_TRUE(completion.done());
  }
  chain.wake();
  EXPECT_TRUE(caller.returns(Wait::kDone));
}

TEST(WakeChain, AThreadThatWakesEarlyMakesRoom) {
  for (const std::size_t early : {kMany - 1, kMany / 2, std::size_t{0}}) {
    Callers callers(kMany);
    callers.publish_all();
    callers[early].waiter().parker.unpark();  // a late wake-up of an earlier sleep
    EXPECT_TRUE(callers[early].returns(Wait::kDone));
    callers.chain().wake();
    EXPECT_TRUE(callers.all_return());
  }
}

TEST(WakeChain, AThreadWhoseDeadlinePassesMakesRoom) {
  std::deque<Completion> completions(kMany);
  std::deque<Caller> callers;
  for (std::size_t i = 0; i + 1 < kMany; ++i) callers.emplace_back(completions[i]);
  for (const Caller& caller : callers) ASSERT_TRUE(caller.asleep());
  Caller& last = callers.emplace_back(completions[kMany - 1], Clock::now() + milliseconds(100));
  ASSERT_TRUE(eventually([&] { return last.thread().asleep() || last.returned(); }));
  WakeChain chain;
  for (Completion& completion : completions) chain.publish(completion);
  // No wake(): only the one with the deadline wakes by itself. (A slow machine may have let it go before.)
  if (!last.returns(Wait::kDone)) chain.wake();
  for (std::size_t i = 0; i + 1 < kMany; ++i) EXPECT_TRUE(callers[i].returns(Wait::kDone));
}

TEST(WakeChain, AThreadThatLeftBeforeTheEndIsNotQueued) {
  Callers callers(kMany);
  Completion left_alone;
  Caller gone(left_alone, Clock::now() + microseconds(100));
  ASSERT_TRUE(gone.returns(Wait::kTimeout));
  callers.chain().publish(left_alone);
  callers.publish_all();
  callers.chain().wake();
  EXPECT_TRUE(callers.all_return());
}

}  // namespace
}  // namespace service_streamer::support
