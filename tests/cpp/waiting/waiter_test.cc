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

constexpr std::size_t kMaxAwake = 4;  // as WakeQueue
constexpr std::size_t kMany = 12;

void publish_alone(Completion& completion) {
  WakeQueue::instance().publish(completion);
  WakeQueue::instance().wake();
}

// A thread that waits once, on a waiter that the test can access.
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

// Callers that sleep, each on a completion of its own.
class Callers {
 public:
  explicit Callers(std::size_t count) : completions_(count) {
    for (Completion& completion : completions_) {
      callers_.emplace_back(completion);
      EXPECT_TRUE(callers_.back().asleep());
    }
  }

  void publish_all() {
    for (Completion& completion : completions_) WakeQueue::instance().publish(completion);
  }
  Caller& operator[](std::size_t i) { return callers_[i]; }
  bool all_return() const {
    return std::all_of(callers_.begin(), callers_.end(),
                       [](const Caller& caller) { return caller.returns(Wait::kDone); });
  }

 private:
  std::deque<Completion> completions_;
  std::deque<Caller> callers_;
};

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

TEST(WakeQueue, WakesNoThreadBeforeWakeIsCalled) {
  for (const std::size_t count : {kMaxAwake, kMany}) {
    Callers callers(count);
    callers.publish_all();
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(callers[i].asleep());
      EXPECT_FALSE(callers[i].returned());
    }
    WakeQueue::instance().wake();
    EXPECT_TRUE(callers.all_return());
  }
}

TEST(WakeQueue, WakesAFewThreadsAndTheNextInOrderWhenOneLeaves) {
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
  for (Completion& completion : completions) WakeQueue::instance().publish(completion);
  WakeQueue::instance().wake();
  for (std::size_t i = 0; i < kMany; ++i) {
    EXPECT_TRUE(eventually([&] { return woken.at(i).load(); }));
    if (i + 1 < kMaxAwake) continue;
    EXPECT_EQ(std::count(woken.begin(), woken.end(), true), static_cast<std::ptrdiff_t>(i + 1));
    may_leave.at(i + 1 - kMaxAwake) = true;
    may_leave.at(i + 1 - kMaxAwake).notify_one();
  }
  for (std::atomic<bool>& leave : may_leave) {
    leave = true;
    leave.notify_one();
  }
}

TEST(WakeQueue, AThreadThatHasEnteredBeforeTheEndWaitsForItsTurn) {
  Completion completion;
  Sleeping sleeping;
  ASSERT_TRUE(completion.enter(sleeping.waiter()));
  WakeQueue::instance().publish(completion);
  ASSERT_TRUE(completion.done());
  Thread thread([&] { EXPECT_EQ(completion.wait(sleeping.waiter(), TimePoint::max(), true), Wait::kDone); });
  ASSERT_TRUE(eventually([&] { return thread.asleep(); }));
  EXPECT_FALSE(thread.finished());
  WakeQueue::instance().wake();
  EXPECT_TRUE(eventually([&] { return thread.finished(); }));
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

TEST(WakeQueue, QueuesOnlyRequestsThatAThreadWaitsFor) {
  std::deque<Completion> not_waited_for(kMany);
  Completion waited_for;
  Caller caller(waited_for);
  ASSERT_TRUE(caller.asleep());
  WakeQueue::instance().publish(waited_for);
  for (Completion& completion : not_waited_for) {
    WakeQueue::instance().publish(completion);
    EXPECT_TRUE(completion.done());
  }
  WakeQueue::instance().wake();
  EXPECT_TRUE(caller.returns(Wait::kDone));
}

TEST(WakeQueue, AWaiterThatWaitsAgainWithoutLeavingCountsAsAwakeOnce) {
  Waiter& waiter = WaiterPool::acquire();
  for (int i = 0; i < 10; ++i) {
    Completion completion;
    ASSERT_TRUE(completion.enter(waiter));
    WakeQueue::instance().publish(completion);
    WakeQueue::instance().wake();
    EXPECT_EQ(waiter.parker.park(Clock::now() + std::chrono::seconds(20)), Parker::Wake::kUnparked);
  }
  WaiterPool::release(waiter);
}

TEST(WakeQueue, AThreadThatWakesBeforeItsTurnMakesRoom) {
  for (const std::size_t early : {kMany - 1, kMany / 2, std::size_t{0}}) {
    Callers callers(kMany);
    callers.publish_all();
    callers[early].waiter().parker.unpark();  // as a late wake-up that was meant for an earlier sleep
    EXPECT_TRUE(callers[early].returns(Wait::kDone));
    WakeQueue::instance().wake();
    EXPECT_TRUE(callers.all_return());
  }
}

TEST(WakeQueue, AThreadWhoseDeadlinePassesMakesRoom) {
  std::deque<Completion> completions(kMany);
  std::deque<Caller> callers;
  for (std::size_t i = 0; i + 1 < kMany; ++i) callers.emplace_back(completions[i]);
  for (const Caller& caller : callers) ASSERT_TRUE(caller.asleep());
  Caller& last = callers.emplace_back(completions[kMany - 1], Clock::now() + milliseconds(100));
  ASSERT_TRUE(eventually([&] { return last.thread().asleep() || last.returned(); }));
  for (Completion& completion : completions) WakeQueue::instance().publish(completion);
  // Without wake(), only the thread with the deadline wakes up. On a slow machine its deadline may have passed before.
  if (!last.returns(Wait::kDone)) WakeQueue::instance().wake();
  for (std::size_t i = 0; i + 1 < kMany; ++i) EXPECT_TRUE(callers[i].returns(Wait::kDone));
}

TEST(WakeQueue, AThreadThatGaveUpBeforeTheEndIsNotQueued) {
  Callers callers(kMany);
  Completion left;
  Caller caller(left, Clock::now() + microseconds(100));
  ASSERT_TRUE(caller.returns(Wait::kTimeout));
  WakeQueue::instance().publish(left);
  callers.publish_all();
  WakeQueue::instance().wake();
  EXPECT_TRUE(callers.all_return());
}

}  // namespace
}  // namespace service_streamer::support
