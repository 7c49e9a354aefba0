#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>

#include "service_streamer/waiting/waiter.h"
#include "simulation/random.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::microseconds;
using Wait = Completion::Wait;

// In each round the deadlines of all callers are close to the time at which their requests end.
TEST(WakeQueue, LosesNoThreadWhenDeadlinesPassDuringTheEnd) {
  constexpr std::size_t kCallers = 16;
  constexpr int kRounds = 600 / kStressShare;
  struct Round {
    std::array<Completion, kCallers> completions;
    std::atomic<std::size_t> arrived{0};
    TimePoint end;
  };
  std::deque<Round> rounds(kRounds);
  std::atomic<int> current{-1};
  std::atomic<std::size_t> finished{0};
  std::deque<Thread> callers;
  for (std::size_t me = 0; me < kCallers; ++me) {
    callers.emplace_back([&, me] {
      simulation::Random random(me);
      for (int i = 0; i < kRounds; ++i) {
        while (current.load() < i) std::this_thread::yield();
        Round& round = rounds[static_cast<std::size_t>(i)];
        ++round.arrived;
        // A thread whose wait ended uses the same waiter again, which may still get a late wake-up.
        Sleeping sleeping;
        Completion& completion = round.completions.at(random.uniform() < 0.2 ? 0 : me);
        const TimePoint deadline = round.end + microseconds(random.between(-250, 60));
        completion.wait(sleeping.waiter(), deadline);
        while (completion.wait(sleeping.waiter(), TimePoint::max()) != Wait::kDone) {
        }
      }
      ++finished;
    });
  }
  for (int i = 0; i < kRounds; ++i) {
    Round& round = rounds[static_cast<std::size_t>(i)];
    round.end = Clock::now() + microseconds(300);
    current = i;
    ASSERT_TRUE(eventually([&] { return round.arrived == kCallers; }));
    pass_time_until(round.end);
    for (Completion& completion : round.completions) WakeQueue::instance().publish(completion);
    WakeQueue::instance().wake();
  }
  EXPECT_TRUE(eventually([&] { return finished == kCallers; })) << kCallers - finished << " callers still sleep";
}

// Threads publish for each other, and workers are woken after them. Each caller leaves only after another thread ran.
TEST(WakeQueue, LosesNoBatonAmongManyPublishers) {
  constexpr std::size_t kPublishers = 4;
  constexpr std::size_t kCallers = 24;  // more than may be awake
  constexpr std::size_t kRounds = 400 / kStressShare;
  std::deque<std::array<Completion, kCallers>> rounds(kRounds);
  std::array<std::atomic<std::size_t>, kCallers> entered{};
  std::atomic<std::size_t> finished{0};
  std::atomic<bool> over{false};
  std::deque<Thread> threads;
  for (std::size_t me = 0; me < kCallers; ++me) {
    threads.emplace_back([&, me] {
      for (std::size_t i = 0; i < kRounds; ++i) {
        Sleeping sleeping;
        const bool first = rounds[i].at(me).enter(sleeping.waiter());
        entered.at(me) = i + 1;
        rounds[i].at(me).wait(sleeping.waiter(), TimePoint::max(), first);
        std::this_thread::yield();
      }
      ++finished;
    });
  }
  const Thread worker([&] {
    Sleeping sleeping;
    for (int i = 0; !over; ++i) {
      const auto others = i % 2 == 0 ? WakeQueue::Others::kAll : WakeQueue::Others::kFirst;
      WakeQueue::instance().wake_after(others, sleeping.waiter());
      sleeping.waiter().parker.park(TimePoint::max());
    }
  });
  for (std::size_t number = 0; number < kPublishers; ++number) {
    threads.emplace_back([&, number] {
      for (std::size_t i = 0; i < kRounds; ++i) {
        for (std::size_t caller = number; caller < kCallers; caller += kPublishers) {
          EXPECT_TRUE(eventually([&] { return entered.at(caller) > i; })) << "caller " << caller << " still sleeps";
          WakeQueue::instance().publish(rounds[i].at(caller));
        }
        WakeQueue::instance().wake();
      }
    });
  }
  EXPECT_TRUE(eventually([&] { return finished == kCallers; })) << kCallers - finished << " callers still sleep";
  over = true;
  EXPECT_TRUE(eventually([&] { return worker.finished(); }));
}

}  // namespace
}  // namespace service_streamer::support
