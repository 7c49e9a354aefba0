#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>

#include "service_streamer/waiting/waiter.h"
#include "waiting/waiter_testing.h"

namespace service_streamer::support {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Wait = Completion::Wait;

constexpr std::size_t kMaxAwake = 16;  // as WakeQueue
constexpr std::size_t kMany = 40;

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
