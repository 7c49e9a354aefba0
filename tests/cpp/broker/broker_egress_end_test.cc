// How BrokerEgress::take() ends, how a BrokerEgress stops, and a stress test.

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "support/broker_egress.h"

namespace service_streamer::support {
namespace {

TEST_F(BrokerEgressTest, InterruptEndsThisTakeOrTheNext) {
  egress->interrupt();
  take(kPlenty, TakeStatus::kNothing);
  std::atomic<TakeStatus> got{TakeStatus::kTaken};
  {
    Thread sender([&] {
      Taken taken;
      got = egress->take(kPlenty, soon(), taken);
    });
    EXPECT_TRUE(eventually([&] { return sender.asleep(); }));
    egress->interrupt();
  }
  EXPECT_EQ(got, TakeStatus::kNothing);
}

TEST_F(BrokerEgressTest, ASignalInterruptsTake) {
  std::atomic<TakeStatus> got{TakeStatus::kTaken};
  Thread sender([&] {
    Taken taken;
    got = egress->take(kPlenty, soon(), taken);
  });
  EXPECT_TRUE(sender.interrupt_until([&] { return sender.finished(); }));
  EXPECT_EQ(got, TakeStatus::kInterrupted);
}

TEST_F(BrokerEgressTest, ADrainedEngineEndsTakeWhenNothingIsInFlight) {
  const RemoteRequest request = sent(engine, {1});
  const RemoteRequest cancelled = sent(engine, {1});
  close_remote(engine, true);
  const Taken taken = take();
  ASSERT_EQ(taken.chunks.size(), 2U);
  EXPECT_EQ(poll(), TakeStatus::kNothing) << "what is in flight may still be cancelled or expire";
  EXPECT_TRUE(answer(out(), taken.chunks[0]));
  std::atomic<int> calls{0};
  {
    Thread sender([&] {
      Taken more;
      while (egress->take(kPlenty, soon(), more) == TakeStatus::kTaken) ++calls;
    });
    EXPECT_TRUE(eventually([&] { return sender.asleep(); }));
    EXPECT_TRUE(cancelled.cancel(engine, true));
  }
  EXPECT_EQ(calls, 1) << "reply of the cancel, and then of the end";
  take(kPlenty, TakeStatus::kStopped);
  EXPECT_TRUE(request.answered());
}

TEST_F(BrokerEgressTest, TheLastAnswerEndsTakeOfAClosedEngine) {
  const RemoteRequest request = sent(engine, {1});
  const Chunk chunk = take_one();
  close_remote(engine, true);
  std::atomic<TakeStatus> got{TakeStatus::kTaken};
  {
    Thread sender([&] {
      Taken taken;
      got = egress->take(kPlenty, soon(), taken);
    });
    EXPECT_TRUE(eventually([&] { return sender.asleep(); }));
    EXPECT_TRUE(answer(out(), chunk));
  }
  EXPECT_EQ(got, TakeStatus::kStopped);
}

TEST_F(BrokerEgressTest, AnAbortCancelsRequests) {
  const RemoteRequest request = sent(engine, {1});
  const Chunk chunk = take_one();
  close_remote(engine, false);
  abort_remote(engine);
  EXPECT_TRUE(request.ends_as(Outcome::kClosed));
  EXPECT_EQ(take().cancelled, Ids{chunk.id});
  take(kPlenty, TakeStatus::kStopped);
}

TEST_F(BrokerEgressTest, StopEndsRequestsInFlightOnly) {
  const RemoteRequest forwarded = sent(engine, {1});
  const RemoteRequest large = sent(engine, std::vector<int>(10, 1));
  Taken taken;
  while (taken.chunks.size() < 2) egress->take(1, soon(), taken);
  const RemoteRequest queued = sent(engine, {2});
  egress->stop();
  egress->stop();
  EXPECT_TRUE(forwarded.ends_as(Outcome::kClosed));
  EXPECT_TRUE(large.ends_as(Outcome::kClosed));
  EXPECT_FALSE(queued.done());
  EXPECT_FALSE(answer(out(), taken.chunks[0]));
  take(kPlenty, TakeStatus::kStopped);
  EXPECT_TRUE(queued.cancel(engine)) << "the request is still queued";
  EXPECT_EQ(engine.stats().idle_workers, 0);
}

TEST_F(BrokerEgressTest, StopWakesTake) {
  std::atomic<TakeStatus> got{TakeStatus::kTaken};
  {
    Thread sender([&] {
      Taken taken;
      got = egress->take(kPlenty, soon(), taken);
    });
    EXPECT_TRUE(eventually([&] { return sender.asleep(); }));
    egress->stop();
  }
  EXPECT_EQ(got, TakeStatus::kStopped);
  EXPECT_EQ(engine.stats().idle_workers, 0);
}

TEST_F(BrokerEgressTest, RequestsMayOutliveIt) {
  std::unique_ptr<RemoteRequest> request = std::make_unique<RemoteRequest>(sent(engine, {1}));
  take_one();
  const RemoteRequest queued = sent(engine, {1});
  EXPECT_EQ(poll(), TakeStatus::kTaken);
  egress = std::make_unique<BrokerEgress>(engine, 4);  // the new one is made before the old one is destroyed
  EXPECT_TRUE(request->ends_as(Outcome::kClosed));
  request.reset();
  const RemoteRequest next = sent(engine, {3});
  EXPECT_TRUE(answer(out(), take_one()));
  EXPECT_TRUE(next.answered());
}

TEST_F(BrokerEgressTest, TakeSleepsWithoutATimeoutWhileIdle) {
  Thread sender([&] {
    Taken taken;
    egress->take(kPlenty, TimePoint::max(), taken);
  });
  const auto switches = [&] { return sender.voluntary_switches(); };
  EXPECT_TRUE(come_to_rest(switches, [&] { return sender.asleep(); }, milliseconds(50)));
  egress->interrupt();
}

// Answers come late, twice and out of order, while callers cancel, time out and wait.
TEST_F(BrokerEgressTest, EveryRequestEndsOnceUnderStress) {
  constexpr int kCallers = 4;
  constexpr int kRounds = 2'000 / kStressShare;
  Mutex mutex;
  std::deque<Chunk> on_the_way;
  std::atomic<int> ended{0};
  std::atomic<bool> over{false};
  {
    Thread sender([&] {
      for (;;) {
        Taken taken;
        const TakeStatus got = egress->take(8, soon(), taken);
        if (got == TakeStatus::kStopped) return;
        const MutexLock lock(mutex);
        for (Chunk& chunk : taken.chunks) on_the_way.push_back(std::move(chunk));
      }
    });
    std::vector<std::unique_ptr<Thread>> readers;
    for (int reader = 0; reader < 2; ++reader) {
      readers.push_back(std::make_unique<Thread>([&, reader] {
        for (unsigned turn = 0; !over; ++turn) {
          Chunk chunk;
          {
            const MutexLock lock(mutex);
            if (!on_the_way.empty()) {
              const bool last = (turn + static_cast<unsigned>(reader)) % 2 == 0;
              chunk = last ? on_the_way.back() : on_the_way.front();
              if (turn % 7 != 0) last ? on_the_way.pop_back() : on_the_way.pop_front();
            }
          }
          if (chunk.id == 0) {
            std::this_thread::yield();
          } else if (turn % 31 == 0) {
            give(out(), chunk, turn % 2 == 0 ? failure() : loss("lost"));
          } else {
            answer(out(), chunk);
          }
        }
      }));
    }
    {
      std::vector<std::unique_ptr<Thread>> callers;
      for (int caller = 0; caller < kCallers; ++caller) {
        callers.push_back(std::make_unique<Thread>([&, caller] {
          for (int round = 0; round < kRounds; ++round) {
            const RemoteRequest request =
                sent(engine, std::vector<int>(static_cast<std::size_t>(1 + round % 10), round),
                     {.deadline = round % 5 == 0 ? Clock::now() + milliseconds(1) : TimePoint::max()});
            if (round % 3 == caller % 3) request.cancel(engine, true);
            ended += request.wait() ? 1 : 0;
            EXPECT_TRUE(request.request().outcome != Outcome::kAnswered || request.answered());
          }
        }));
      }
    }
    close_remote(engine, true);
    over = true;
  }
  EXPECT_EQ(ended, kCallers * kRounds);
  EXPECT_EQ(out().in_flight(), 0U);
  EXPECT_EQ(engine.stats().running_batches, 0);
}

// A request with more items than take() wants holds back those behind it. It is cancelled at a random moment.
TEST_F(BrokerEgressTest, ARequestThatEndsInTakeDoesNotHoldBackTheNext) {
  Thread sender([&] {
    Taken taken;
    while (egress->take(1, soon(), taken) != TakeStatus::kStopped) {
      for (const Chunk& chunk : taken.chunks) answer(out(), chunk);
      taken = {};
    }
  });
  for (int round = 0; round < 2'000 / kStressShare; ++round) {
    const RemoteRequest large = sent(engine, std::vector<int>(12, round));
    const RemoteRequest next = sent(engine, {round});
    while (out().in_flight() == 0 && !large.done()) std::this_thread::yield();
    large.cancel(engine, true);
    if (!next.wait()) {
      ADD_FAILURE() << "not taken, in round " << round;
      break;
    }
    large.wait();
  }
  close_remote(engine, true);
}

// stop() runs at a random moment.
TEST_F(BrokerEgressTest, StopRacesWithEverythingElse) {
  for (int round = 0; round < 200 / kStressShare; ++round) {
    Engine room(kWaitingRoom);
    std::vector<RemoteRequest> requests;
    {
      BrokerEgress short_lived(room, 2);
      Thread caller([&] {
        for (int i = 0; i < 20; ++i) requests.push_back(sent(room, {i, i, i}));
      });
      Thread sender([&] {
        Taken taken;
        while (short_lived.take(4, soon(), taken) == TakeStatus::kTaken) {
          for (const Chunk& chunk : taken.chunks) answer(short_lived.forwarded(), chunk);
          taken = {};
        }
      });
      Thread canceller([&] { abort_remote(room); });
      for (int i = 0; i < round % 20; ++i) std::this_thread::yield();
      short_lived.stop();
    }
    abort_remote(room);
    for (const RemoteRequest& request : requests) ASSERT_TRUE(request.wait());
    ASSERT_EQ(room.stats().running_batches, 0);
    ASSERT_EQ(room.stats().idle_workers, 0);
  }
}

}  // namespace
}  // namespace service_streamer::support
