#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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

// Waiters of published requests, without threads: the test plays their threads.
class Queued {
 public:
  explicit Queued(std::size_t count) : completions_(count) {
    for (Completion& completion : completions_) {
      waiters_.push_back(&WaiterPool::acquire());
      EXPECT_TRUE(completion.enter(*waiters_.back()));
      WakeQueue::instance().publish(completion);
    }
  }
  ~Queued() {
    for (Waiter* waiter : waiters_) WaiterPool::release(*waiter);
  }
  Queued(const Queued&) = delete;
  Queued& operator=(const Queued&) = delete;

  Waiter& operator[](std::size_t i) { return *waiters_[i]; }

 private:
  std::deque<Completion> completions_;
  std::deque<Waiter*> waiters_;
};

// Returns whether the waiter was woken since the last call.
bool woken(Waiter& waiter) {
  return waiter.parker.park(Clock::now()) == Parker::Wake::kUnparked;
}

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

TEST(WakeQueue, WakesThreadsInOrderUntilManyAreAwakeAndAgainOnceFewAreLeft) {
  WakeQueue& queue = WakeQueue::instance();
  Queued queued(3 * kMaxAwake);
  queue.wake();
  std::size_t left = 0;
  for (std::size_t next = 0; next < 3 * kMaxAwake; ++next) {
    if (next == left + kMaxAwake) {
      while (left + 1 < next) {
        EXPECT_FALSE(woken(queued[next]));
        queue.wake();
        queue.leave(queued[left++]);
      }
    }
    EXPECT_TRUE(woken(queued[next]));
    queue.pass(queued[next]);
  }
}

TEST(WakeQueue, OneThreadAtATimeIsBeingWoken) {
  WakeQueue& queue = WakeQueue::instance();
  Queued queued(4);
  queue.wake();
  EXPECT_TRUE(woken(queued[0]));
  queue.wake();  // of another batch
  EXPECT_FALSE(woken(queued[1])) << "the first thread has the baton";
  queue.pass(queued[0]);
  EXPECT_TRUE(woken(queued[1]));
  queue.leave(queued[0]);
  EXPECT_FALSE(woken(queued[2])) << "the second thread has the baton";
  queue.pass(queued[1]);
  EXPECT_TRUE(woken(queued[2]));
  EXPECT_FALSE(woken(queued[3]));
}

TEST(WakeQueue, OfAFastModelTwoThreadsAtATimeAreBeingWoken) {
  WakeQueue& queue = WakeQueue::instance();
  Queued queued(6);
  queue.wake(2);
  EXPECT_TRUE(woken(queued[0]));
  EXPECT_TRUE(woken(queued[1]));
  queue.wake(2);
  EXPECT_FALSE(woken(queued[2]));
  queue.pass(queued[1]);
  EXPECT_TRUE(woken(queued[2]));
  EXPECT_FALSE(woken(queued[3]));
  queue.pass(queued[0]);
  EXPECT_TRUE(woken(queued[3]));
  queue.leave(queued[2]);
  EXPECT_FALSE(woken(queued[4])) << "the other thread has the baton";
  queue.pass(queued[3]);
  EXPECT_TRUE(woken(queued[4]));
  EXPECT_FALSE(woken(queued[5]));
}

TEST(WakeQueue, AThreadThatLeavesWithTheBatonPassesIt) {
  Queued queued(3);
  WakeQueue::instance().wake();
  WakeQueue::instance().leave(queued[0]);
  EXPECT_TRUE(woken(queued[1]));
  WakeQueue::instance().pass(queued[1]);
  WakeQueue::instance().pass(queued[1]);
  EXPECT_TRUE(woken(queued[2]));
}

TEST(WakeQueue, ABatonThatFoundNoQueuedThreadIsGivenAgain) {
  Queued first(1);
  WakeQueue::instance().wake();
  WakeQueue::instance().pass(first[0]);
  Queued second(1);
  WakeQueue::instance().wake();
  EXPECT_TRUE(woken(second[0]));
}

TEST(WakeQueue, AThreadThatWokeUpBeforeItsTurnGetsNoBaton) {
  WakeQueue& queue = WakeQueue::instance();
  Queued queued(3);
  queue.pass(queued[1]);
  EXPECT_TRUE(woken(queued[0]));
  queue.pass(queued[0]);
  EXPECT_FALSE(woken(queued[1]));
  EXPECT_TRUE(woken(queued[2]));
}

TEST(WakeQueue, AForkedChildHasNeitherTheBatonNorTheThreadsOfItsParent) {
  WakeQueue& queue = WakeQueue::instance();
  Queued queued(2 * kMaxAwake);
  queue.wake();
  for (std::size_t i = 0; i + 1 < kMaxAwake; ++i) queue.pass(queued[i]);
  const pid_t child = fork();
  if (child == 0) {
    bool all = true;
    for (std::size_t i = 0; i < kMaxAwake; ++i) {
      Queued own(1);
      queue.wake();
      all = all && woken(own[0]);
    }
    _exit(all ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  queue.leave(queued[0]);
  EXPECT_FALSE(woken(queued[kMaxAwake])) << "the last woken thread has the baton";
  queue.pass(queued[kMaxAwake - 1]);
  EXPECT_TRUE(woken(queued[kMaxAwake]));
}

TEST(WakeQueue, AWaiterAfterOthersIsWokenOnceTheQueuedThreadsAreAwake) {
  WakeQueue& queue = WakeQueue::instance();
  Sleeping worker;
  Sleeping another;
  Queued queued(2);
  queue.wake_after(WakeQueue::Others::kAll, worker.waiter());
  queue.wake_after(WakeQueue::Others::kAll, another.waiter());
  queue.wake_after(WakeQueue::Others::kAll, worker.waiter());
  Queued later(1);
  EXPECT_TRUE(woken(queued[0]));
  queue.pass(queued[0]);
  EXPECT_TRUE(woken(queued[1]));
  EXPECT_FALSE(woken(worker.waiter()));
  queue.pass(queued[1]);
  EXPECT_TRUE(woken(worker.waiter()));
  EXPECT_TRUE(woken(another.waiter()));
  EXPECT_TRUE(woken(later[0]));
}

TEST(WakeQueue, AWaiterAfterOthersIsWokenAtOnceIfNoneIsQueued) {
  WakeQueue& queue = WakeQueue::instance();
  Sleeping worker;
  queue.wake_after(WakeQueue::Others::kAll, worker.waiter());
  EXPECT_TRUE(woken(worker.waiter()));
  Queued queued(1);
  queue.wake();
  queue.pass(queued[0]);
  EXPECT_FALSE(woken(worker.waiter()));
}

TEST(WakeQueue, AWaiterAfterOthersIsWokenAlthoughEnoughThreadsAreAwake) {
  WakeQueue& queue = WakeQueue::instance();
  Queued queued(kMaxAwake);
  queue.wake();
  for (std::size_t i = 0; i < kMaxAwake; ++i) queue.pass(queued[i]);
  Sleeping worker;
  queue.wake_after(WakeQueue::Others::kAll, worker.waiter());
  EXPECT_TRUE(woken(worker.waiter()));
}

TEST(WakeQueue, AWaiterAfterTheFirstWaitsForNoThreadToLeave) {
  WakeQueue& queue = WakeQueue::instance();
  Queued queued(kMany);
  queue.wake();
  for (std::size_t i = 0; i < 3; ++i) queue.pass(queued[i]);
  Sleeping forwarder;
  queue.wake_after(WakeQueue::Others::kFirst, forwarder.waiter());
  for (std::size_t i = 3; i < kMaxAwake; ++i) {
    EXPECT_FALSE(woken(forwarder.waiter())) << i;
    queue.pass(queued[i]);
  }
  EXPECT_TRUE(woken(forwarder.waiter()));
  queue.wake_after(WakeQueue::Others::kFirst, forwarder.waiter());
  EXPECT_TRUE(woken(forwarder.waiter())) << "enough threads are awake already";
  EXPECT_FALSE(woken(queued[kMaxAwake]));
}

TEST(WakeQueue, AWaiterThatDoesNotWaitAnyMoreLeavesTheQueue) {
  WakeQueue& queue = WakeQueue::instance();
  Queued queued(2);
  Waiter& worker = WaiterPool::acquire();
  queue.wake_after(WakeQueue::Others::kAll, worker);
  WaiterPool::release(worker);
  Waiter& reused = WaiterPool::acquire();
  ASSERT_EQ(&reused, &worker);
  queue.pass(queued[0]);
  queue.pass(queued[1]);
  EXPECT_FALSE(woken(reused));
  WaiterPool::release(reused);
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
