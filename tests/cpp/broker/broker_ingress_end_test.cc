// How BrokerIngress::take() ends, how a BrokerIngress stops, and a stress test.

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "support/broker_ingress.h"

namespace service_streamer::support {
namespace {

TEST_F(BrokerIngressTest, StopCancelsAllRequestsAndAcceptsNoMore) {
  Gate gate;
  owner.add_ready(gate.before());
  EXPECT_EQ(submit(1, {1}), SubmitStatus::kAccepted);
  ASSERT_TRUE(gate.entered());
  EXPECT_EQ(submit(2, {1}), SubmitStatus::kAccepted);
  ingress->stop();
  ingress->stop();
  EXPECT_EQ(submit(3, {1}), SubmitStatus::kClosed);
  for (const EndedCall& end : take(2)) EXPECT_EQ(end.outcome, Outcome::kCancelled);
  EXPECT_EQ(poll(), TakeStatus::kStopped);
  EXPECT_EQ(poll(), TakeStatus::kStopped);
}

TEST_F(BrokerIngressTest, RequestsThatEndedBeforeStopAreStillTaken) {
  owner.add_ready();
  EXPECT_EQ(submit(1, {1}), SubmitStatus::kAccepted);
  ASSERT_TRUE(eventually([&] { return owner.engine.stats().counters.completed == 1; }));
  ingress->stop();
  EXPECT_EQ(take_one().outcome, Outcome::kAnswered);
  EXPECT_EQ(poll(), TakeStatus::kStopped);
}

TEST_F(BrokerIngressTest, AnEndAnInterruptAndStopWakeTake) {
  std::atomic<int> ended{0};
  std::atomic<int> nothing{0};
  const auto taker = std::make_unique<Thread>([&] {
    for (;;) {
      Ends ends;
      const TakeStatus got = ingress->take(soon(), ends);
      if (got == TakeStatus::kStopped) return;
      ended += static_cast<int>(ends.size());
      if (got == TakeStatus::kNothing) ++nothing;
    }
  });
  EXPECT_TRUE(eventually([&] { return taker->asleep(); }));
  EXPECT_EQ(submit(1, {1}), SubmitStatus::kAccepted);
  const Ids ids{1};
  ingress->cancel(ids);
  EXPECT_TRUE(eventually([&] { return ended == 1 && taker->asleep(); }));
  ingress->interrupt();
  EXPECT_TRUE(eventually([&] { return nothing == 1; }));
  ingress->stop();
  EXPECT_TRUE(eventually([&] { return taker->finished(); }));
}

TEST_F(BrokerIngressTest, ASignalInterruptsTake) {
  std::atomic<TakeStatus> got{TakeStatus::kTaken};
  Thread taker([&] {
    Ends ended;
    got = ingress->take(soon(), ended);
  });
  EXPECT_TRUE(taker.interrupt_until([&] { return taker.finished(); }));
  EXPECT_EQ(got, TakeStatus::kInterrupted);
}

TEST_F(BrokerIngressTest, DestructionWithRequestsInFlightLeaksNothing) {
  Gate gate;
  owner.add_ready(gate.before());
  EXPECT_EQ(submit(1, {1}), SubmitStatus::kAccepted);
  ASSERT_TRUE(gate.entered());
  EXPECT_EQ(submit(2, {1}), SubmitStatus::kAccepted);
  ingress.reset();
  gate.open();
  EXPECT_TRUE(eventually([&] { return owner.engine.stats().running_items == 0; }));
  EXPECT_EQ(owner.engine.stats().counters.cancelled, 2U);
}

// Several threads submit, some requests are cancelled at once, and workers die. Each request is taken once.
TEST_F(BrokerIngressTest, EveryRequestIsTakenOnceUnderStress) {
  constexpr int kThreads = 3;
  constexpr int kRounds = 2'000 / kStressShare;
  owner.add_ready();
  owner.add_ready();
  std::map<std::uint64_t, int> taken;
  {
    Thread taker([&] {
      for (Ends ended; ingress->take(soon(), ended) == TakeStatus::kTaken; ended.clear()) {
        for (const EndedCall& end : ended) {
          ++taken[end.id];
          EndedCall read;
          const bool has_body = end.outcome != Outcome::kCancelled && end.outcome != Outcome::kExpired;
          EXPECT_TRUE(!has_body || parse_result(body_of(end), 1 + static_cast<std::uint32_t>(end.id % 12), read));
        }
      }
    });
    {
      std::vector<std::unique_ptr<Thread>> submitters;
      for (int thread = 0; thread < kThreads; ++thread) {
        submitters.push_back(std::make_unique<Thread>([&, thread] {
          for (int round = 0; round < kRounds; ++round) {
            const auto id = static_cast<std::uint64_t>(thread) * kRounds + static_cast<std::uint64_t>(round) + 1;
            const TimePoint deadline = round % 7 == 0 ? Clock::now() + milliseconds(1) : TimePoint::max();
            EXPECT_EQ(submit(id, std::vector<int>(1 + id % 12, round), deadline), SubmitStatus::kAccepted);
            const Ids ids{id, id > 5 ? id - 5 : id};
            if (round % 3 == 0) ingress->cancel(ids);
          }
        }));
      }
    }
    EXPECT_EQ(owner.engine.stats().counters.submitted, static_cast<std::uint64_t>(kThreads * kRounds));
    ingress->stop();
  }
  EXPECT_EQ(taken.size(), static_cast<std::size_t>(kThreads * kRounds));
  for (const auto& [id, times] : taken) EXPECT_EQ(times, 1) << id;
}

// stop() and cancel() run at random moments.
TEST_F(BrokerIngressTest, StopAndCancelRaceWithSubmit) {
  owner.add_ready();
  for (int round = 0; round < 200 / kStressShare; ++round) {
    BrokerIngress short_lived(owner.engine, *owner.server);
    std::atomic<int> accepted{0};
    std::atomic<int> taken{0};
    {
      Thread submitter([&] {
        for (std::uint64_t id = 1; id <= 20; id += 2) {
          std::vector<BrokerIngress::Submission> pair(2);
          for (std::size_t i = 0; i < 2; ++i) {
            pair[i].head.id = id + i;
            pair[i].body = request_of({1});
          }
          short_lived.submit(pair);
          for (const BrokerIngress::Submission& one : pair)
            accepted += one.submitted == SubmitStatus::kAccepted ? 1 : 0;
        }
      });
      Thread canceller([&] {
        for (std::uint64_t id = 1; id <= 20; ++id) short_lived.cancel({&id, 1});
      });
      Thread taker([&] {
        for (Ends ended; short_lived.take(soon(), ended) == TakeStatus::kTaken; ended.clear()) {
          taken += static_cast<int>(ended.size());
        }
      });
      for (int i = 0; i < round % 20; ++i) std::this_thread::yield();
      short_lived.stop();
    }
    ASSERT_EQ(taken, accepted);
  }
  EXPECT_TRUE(eventually([&] { return owner.engine.stats().running_items == 0; }));
}

}  // namespace
}  // namespace service_streamer::support
