#include "service_streamer/waiting/parker.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using Wake = Parker::Wake;

// A thread that sleeps once on its own parker, for ever or until `deadline`.
class Sleeper {
 public:
  explicit Sleeper(TimePoint deadline = TimePoint::max())
      : thread_([this, deadline] { wake_ = parker_.park(deadline); }) {}

  Parker& parker() { return parker_; }
  Thread& thread() { return thread_; }
  bool woke() const { return thread_.finished(); }
  Wake wake() const { return wake_; }

 private:
  Parker parker_;
  std::atomic<Wake> wake_{Wake::kTimeout};
  Thread thread_;
};

TEST(Parker, KeepsAWakeUpThatComesBeforeTheSleep) {
  Parker parker;
  parker.unpark();
  EXPECT_EQ(parker.park(TimePoint::max()), Wake::kUnparked);
}

TEST(Parker, KeepsSeveralWakeUpsBeforeASleepAsOne) {
  Parker parker;
  for (int i = 0; i < 3; ++i) parker.unpark();
  EXPECT_EQ(parker.park(TimePoint::max()), Wake::kUnparked);
  EXPECT_EQ(parker.park(Clock::now()), Wake::kTimeout);
}

TEST(Parker, ReportsAWakeUpEvenIfTheDeadlineHasPassed) {
  Parker parker;
  parker.unpark();
  EXPECT_EQ(parker.park(TimePoint{}), Wake::kUnparked);
}

TEST(Parker, DoesNotSleepIfTheDeadlineHasPassed) {
  Parker parker;
  EXPECT_EQ(parker.park(Clock::now() - milliseconds(1)), Wake::kTimeout);
  EXPECT_EQ(parker.park(TimePoint{}), Wake::kTimeout);
  EXPECT_EQ(parker.park(TimePoint(Duration(-1))), Wake::kTimeout);
  EXPECT_EQ(parker.park(TimePoint::min()), Wake::kTimeout);
}

TEST(Parker, NeverWakesBeforeTheDeadline) {
  Parker parker;
  for (int i = 0; i < 20; ++i) {
    const TimePoint deadline = Clock::now() + microseconds(50 * i);
    EXPECT_EQ(parker.park(deadline), Wake::kTimeout);
    EXPECT_GE(Clock::now(), deadline);
  }
}

TEST(Parker, SleepsIfTheDeadlineIsFarAway) {
  Sleeper sleeper(TimePoint::max() - Duration(1));
  ASSERT_TRUE(eventually([&] { return sleeper.thread().asleep(); }));
  sleeper.parker().unpark();
  ASSERT_TRUE(eventually([&] { return sleeper.woke(); }));
  EXPECT_EQ(sleeper.wake(), Wake::kUnparked);
}

TEST(Parker, UnparkWakesTheSleeper) {
  Sleeper sleeper;
  ASSERT_TRUE(eventually([&] { return sleeper.thread().asleep(); }));
  sleeper.parker().unpark();
  ASSERT_TRUE(eventually([&] { return sleeper.woke(); }));
  EXPECT_EQ(sleeper.wake(), Wake::kUnparked);
}

TEST(Parker, ASignalEndsTheSleep) {
  for (const TimePoint deadline : {TimePoint::max(), Clock::now() + hours(1)}) {
    Sleeper sleeper(deadline);
    ASSERT_TRUE(sleeper.thread().interrupt_until([&] { return sleeper.woke(); }));
    EXPECT_EQ(sleeper.wake(), Wake::kInterrupted);
  }
}

TEST(Parker, LosesNoWakeUpWhenTwoThreadsWakeEachOtherInTurn) {
  constexpr int kTurns = 20'000 / kStressShare;
  std::array<Parker, 2> parkers;
  std::atomic<int> turn{0};
  const auto play = [&](int me) {
    for (int i = me; i < kTurns; i += 2) {
      while (turn.load(std::memory_order_relaxed) != i) parkers[static_cast<std::size_t>(me)].park(TimePoint::max());
      turn.store(i + 1, std::memory_order_relaxed);
      parkers[static_cast<std::size_t>(1 - me)].unpark();
    }
  };
  {
    Thread other([&] { play(1); });
    play(0);
  }
  EXPECT_EQ(turn, kTurns);
}

TEST(Parker, WritesBeforeAWakeUpAreVisibleAfterIt) {
  for (int i = 0; i < 500; ++i) {
    Parker parker;
    int written = 0;  // not atomic, so that a sanitizer reports a missing order
    Thread writer([&] {
      written = i + 1;
      parker.unpark();
    });
    while (parker.park(TimePoint::max()) != Wake::kUnparked) {
    }
    EXPECT_EQ(written, i + 1);
  }
}

TEST(Parker, AWakeUpAtTheDeadlineIsNotLost) {
  constexpr int kRounds = 3'000 / kStressShare;
  Parker parker;
  std::atomic<TimePoint> wake_at{TimePoint{}};
  std::atomic<bool> over{false};
  Thread waker([&] {
    TimePoint seen{};
    for (int i = 0; i < kRounds; ++i) {
      while (wake_at.load() == seen) {
        if (over) return;
        std::this_thread::yield();
      }
      seen = wake_at;
      while (Clock::now() < seen) {
      }
      parker.unpark();
    }
  });
  const std::shared_ptr<void> end(nullptr, [&](void*) { over = true; });  // also after a failure
  for (int i = 0; i < kRounds; ++i) {
    const TimePoint deadline = Clock::now() + microseconds(20);
    wake_at = deadline + Duration(500 * (i % 200));  // covers the time by which sleepers wake late
    // The wake-up ends this sleep, or it is kept for the next one.
    if (parker.park(deadline) == Wake::kUnparked) continue;
    ASSERT_EQ(parker.park(Clock::now() + kPatience), Wake::kUnparked);
  }
}

TEST(Word, WaitReturnsAtOnceIfTheWordIsDifferent) {
  std::atomic<std::uint32_t> word{1};
  EXPECT_EQ(wait_on(word, 0, TimePoint::max()), Wake::kUnparked);
}

TEST(Word, WaitEndsAtItsDeadline) {
  std::atomic<std::uint32_t> word{1};
  const TimePoint deadline = Clock::now() + milliseconds(1);
  EXPECT_EQ(wait_on(word, 1, deadline), Wake::kTimeout);
  EXPECT_GE(Clock::now(), deadline);
}

TEST(Word, WakeAllWakesAllThreads) {
  std::atomic<std::uint32_t> word{0};
  std::vector<std::unique_ptr<Thread>> threads;
  for (int i = 0; i < 3; ++i) {
    threads.push_back(std::make_unique<Thread>([&] {
      while (word == 0) wait_on(word, 0, TimePoint::max());
    }));
  }
  for (const auto& thread : threads) {
    ASSERT_TRUE(eventually([&] { return thread->asleep(); }));
  }
  word = 1;
  wake_all(word);
  for (const auto& thread : threads) {
    EXPECT_TRUE(eventually([&] { return thread->finished(); }));
  }
}

}  // namespace
}  // namespace service_streamer::support
