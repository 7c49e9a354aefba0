// Requests that leave a process as bytes, and what becomes of them there.

#include "service_streamer/broker/broker_egress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "support/broker_bodies.h"
#include "support/client_link.h"

namespace service_streamer::support {
namespace {

using ipc::BrokerEgress;
using Got = BrokerEgress::Got;
using Taken = BrokerEgress::Taken;
using std::chrono::milliseconds;
using Ids = std::vector<std::uint64_t>;

constexpr std::size_t kPlenty = 1'000'000;

class OutletTest : public testing::Test {
 protected:
  ~OutletTest() override {
    close_remote(engine, false);
    egress->stop();
    abort_remote(engine);
    EXPECT_EQ(engine.stats().running_batches, 0) << "everything was given back";
  }

  Taken take(std::size_t limit = kPlenty, Got expected = Got::kSomething) const {
    Taken taken;
    EXPECT_EQ(egress->take(limit, soon(), taken), expected);
    return taken;
  }
  Chunk take_one() const {
    Taken taken = take();
    EXPECT_EQ(taken.chunks.size(), 1U);
    return taken.chunks.empty() ? Chunk{} : taken.chunks.front();
  }
  Got poll(std::size_t limit = kPlenty) const {
    Taken taken;
    return egress->take(limit, Clock::now(), taken);
  }
  ForwardedRequests& out() const { return egress->handed_out(); }

  // One whose deadline comes soon, but not before it has left.
  RemoteRequest taken_before_it_expires(Chunk& chunk) {
    for (Duration left = milliseconds(10);; left *= 2) {
      RemoteRequest request = sent(engine, {1}, {.deadline = Clock::now() + left});
      Taken taken;
      egress->take(kPlenty, request.request().deadline, taken);
      if (taken.chunks.empty()) continue;
      chunk = taken.chunks.front();
      return request;
    }
  }

  Engine engine{kWaitingRoom};
  std::unique_ptr<BrokerEgress> egress = std::make_unique<BrokerEgress>(engine, 4);
};

TEST_F(OutletTest, ARequestLeavesAndItsAnswerComesBack) {
  const RemoteRequest request = sent(engine, {1, 2, 3}, {.priority = 5, .deadline = soon()});
  const Chunk chunk = take_one();
  EXPECT_GT(chunk.id, 0U);
  EXPECT_EQ(chunk.begin, 0U);
  EXPECT_EQ(chunk.items, 3U);
  EXPECT_EQ(chunk.priority, 5);
  EXPECT_EQ(chunk.deadline, request.request().deadline);
  EXPECT_EQ(out().in_flight(), 1U);
  EXPECT_FALSE(request.done());
  EXPECT_TRUE(answer(out(), chunk));
  EXPECT_TRUE(request.answered());
  EXPECT_EQ(out().in_flight(), 0U);
  EXPECT_EQ(engine.stats().running_items, 0U);
  EXPECT_EQ(poll(), Got::kNothing);
}

TEST_F(OutletTest, LargeRequestsAreCutAndJoinedInOrderHoweverTheAnswersCome) {
  const RemoteRequest request = sent(engine, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  Taken taken = take();
  ASSERT_EQ(taken.chunks.size(), 3U);
  EXPECT_EQ(taken.chunks[2].begin, 8U);
  EXPECT_EQ(taken.chunks[2].items, 2U);
  for (const std::size_t i : {2U, 0U, 1U}) {
    EXPECT_FALSE(request.done());
    EXPECT_TRUE(answer(out(), taken.chunks[i]));
  }
  EXPECT_TRUE(request.answered());
}

TEST_F(OutletTest, OnlyAboutSoManyItemsLeaveAtOnce) {
  const RemoteRequest first = sent(engine, std::vector<int>(10, 1));
  const RemoteRequest second = sent(engine, {1});
  std::vector<Chunk> all;
  for (const std::size_t expected : {1U, 1U, 1U, 1U}) {
    Taken taken = take(1);
    EXPECT_EQ(taken.chunks.size(), expected);
    all.insert(all.end(), taken.chunks.begin(), taken.chunks.end());
    EXPECT_EQ(out().in_flight(), all.size() > 3 ? 2U : 1U);
  }
  EXPECT_EQ(poll(1), Got::kNothing);
  for (const Chunk& chunk : all) EXPECT_TRUE(answer(out(), chunk));
  EXPECT_TRUE(first.answered());
  EXPECT_TRUE(second.answered());
}

TEST_F(OutletTest, WithALimitOfNothingItOnlyTellsWhatIsWithdrawn) {
  const RemoteRequest request = sent(engine, {1});
  const Chunk chunk = take_one();
  const RemoteRequest queued = sent(engine, {2});
  EXPECT_EQ(poll(0), Got::kNothing);
  EXPECT_TRUE(request.cancel(engine, true));
  EXPECT_EQ(take(0).withdrawn, Ids{chunk.id});
  EXPECT_TRUE(answer(out(), take_one()));
  EXPECT_TRUE(queued.answered());
}

TEST_F(OutletTest, DuplicatesAndWhatNobodyAskedForAreIgnored) {
  const RemoteRequest request = sent(engine, {1, 2, 3, 4, 5, 6});
  const Taken taken = take(1);
  ASSERT_EQ(taken.chunks.size(), 1U);
  const Chunk first = taken.chunks[0];
  Chunk not_out = first;
  not_out.begin = 4;
  not_out.items = 2;
  EXPECT_FALSE(give(out(), not_out, answer_to(first))) << "it has not left yet";
  for (const auto& [begin, items] : {std::pair{1U, 4U}, {0U, 3U}, {0U, 5U}, {4U, 4U}, {UINT32_MAX, 4U}}) {
    Chunk other = first;
    other.begin = begin;
    const ForwardedRequests::Answer wrong{
        .id = first.id, .begin = begin, .items = items, .body = body_of(answer_to(first))};
    EXPECT_EQ(out().answer({&wrong, 1}), 0U) << begin << " " << items;
  }
  Chunk unknown = first;
  unknown.id = 99;
  EXPECT_FALSE(answer(out(), unknown));
  EXPECT_TRUE(answer(out(), first));
  EXPECT_FALSE(answer(out(), first));
  EXPECT_FALSE(give(out(), first, failure())) << "it has been answered";
  const Chunk second = take_one();
  EXPECT_EQ(second.begin, 4U);
  EXPECT_TRUE(answer(out(), second));
  EXPECT_FALSE(answer(out(), second));
  EXPECT_TRUE(request.answered());
}

TEST_F(OutletTest, TheFirstPartThatFailsEndsTheRequestAndTheOthersAreWithdrawn) {
  const RemoteRequest request = sent(engine, std::vector<int>(10, 1));
  const Taken taken = take();
  EXPECT_TRUE(answer(out(), taken.chunks[0]));
  EXPECT_TRUE(give(out(), taken.chunks[1], failure()));
  EXPECT_TRUE(request.ends_as(Outcome::kFailed));
  ASSERT_EQ(request.call().pieces.size(), 1U);
  EXPECT_EQ(request.call().pieces[0].result.bytes.text(), "error");
  EXPECT_EQ(take().withdrawn, Ids{taken.chunks[0].id});
  EXPECT_FALSE(answer(out(), taken.chunks[2]));
  EXPECT_EQ(poll(), Got::kNothing) << "reply once";
}

TEST_F(OutletTest, ARequestWhoseLastPartFailsIsNotWithdrawn) {
  const RemoteRequest request = sent(engine, std::vector<int>(8, 1));
  const Taken taken = take();
  EXPECT_TRUE(answer(out(), taken.chunks[0]));
  EXPECT_TRUE(give(out(), taken.chunks[1], failure()));
  EXPECT_TRUE(request.ends_as(Outcome::kFailed));
  EXPECT_EQ(poll(), Got::kNothing);
}

TEST_F(OutletTest, LossesComeWithTheirNote) {
  const RemoteRequest request = sent(engine, {1});
  EXPECT_TRUE(give(out(), take_one(), loss("it died")));
  EXPECT_TRUE(request.ends_as(Outcome::kLost));
  EXPECT_EQ(request.call().note, "it died");
}

TEST_F(OutletTest, ACorruptAnswerLosesItsRequestAndNamesIt) {
  const RemoteRequest request = sent(engine, {1});
  const RemoteRequest other = sent(engine, {2});
  const Taken taken = take();
  ASSERT_EQ(taken.chunks.size(), 2U);
  const ForwardedRequests::Answer corrupt = with_body(taken.chunks[0], Bytes::copy_of("nonsense"));
  EXPECT_EQ(out().answer({&corrupt, 1}), 1U);
  EXPECT_TRUE(request.ends_as(Outcome::kLost));
  EXPECT_NE(request.call().note.find("request " + std::to_string(corrupt.id)), std::string::npos);
  EXPECT_NE(request.call().note.find("corrupt"), std::string::npos) << request.call().note;
  EXPECT_TRUE(answer(out(), taken.chunks[1]));
  EXPECT_TRUE(other.answered());
}

TEST_F(OutletTest, WhatNoMessageCanHaveIsLostBeforeItLeaves) {
  constexpr std::uint64_t kTooMuch = 5'000'000'000;
  RemoteRequest large({1, 2, 3, 4, 5, 6, 7, 8});
  large.call().payload.ends = {1, 2, 3, 4, 5, 6, 7, kTooMuch};  // of bytes that nobody will look at
  ASSERT_TRUE(large.submit(engine));
  const RemoteRequest other = sent(engine, {1});
  EXPECT_TRUE(answer(out(), take_one()));
  EXPECT_TRUE(other.answered());
  EXPECT_TRUE(large.ends_as(Outcome::kLost));
  EXPECT_NE(large.call().note.find("4294967295 bytes"), std::string::npos) << large.call().note;
}

TEST_F(OutletTest, WhoTakesMayLoseAndFailThem) {
  const RemoteRequest lost = sent(engine, {1});
  const RemoteRequest failed = sent(engine, {2, 3});
  const Taken taken = take();
  ASSERT_EQ(taken.chunks.size(), 2U);
  const Ids ids{taken.chunks[0].id, 77};
  out().lose(ids, "the broker is gone");
  out().fail(taken.chunks[1].id, Bytes::copy_of("error"));
  out().fail(77, Bytes::copy_of("error"));
  EXPECT_TRUE(lost.ends_as(Outcome::kLost));
  EXPECT_EQ(lost.call().note, "the broker is gone");
  EXPECT_TRUE(failed.ends_as(Outcome::kFailed));
  ASSERT_EQ(failed.call().pieces.size(), 1U);
  EXPECT_EQ(failed.call().pieces[0].result.bytes.text(), "error");
  EXPECT_FALSE(answer(out(), taken.chunks[0]));
  EXPECT_EQ(poll(), Got::kNothing) << "he knows";
}

TEST_F(OutletTest, WhatIsNotAnsweredCanBeSentAgain) {
  const RemoteRequest request = sent(engine, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const Taken taken = take(5);
  ASSERT_EQ(taken.chunks.size(), 2U);
  EXPECT_TRUE(answer(out(), taken.chunks[0]));
  const Ids ids{taken.chunks[0].id, 5};
  std::vector<Chunk> again;
  out().unanswered(ids, again);
  ASSERT_EQ(again.size(), 1U) << "neither the answered one nor what has not left yet";
  EXPECT_EQ(again[0].begin, 4U);
  EXPECT_EQ(text_of(again[0]), text_of(taken.chunks[1]));
  EXPECT_TRUE(answer(out(), again[0]));
  EXPECT_FALSE(answer(out(), taken.chunks[1]));
  EXPECT_TRUE(answer(out(), take_one()));
  EXPECT_TRUE(request.answered());
  again.clear();
  out().unanswered(ids, again);
  EXPECT_TRUE(again.empty());
}

TEST_F(OutletTest, WhatIsCancelledBeforeItLeavesNeverDoes) {
  const RemoteRequest queued = sent(engine, {1});
  EXPECT_TRUE(queued.cancel(engine));
  const RemoteRequest request = sent(engine, std::vector<int>(10, 1));
  EXPECT_EQ(take(1).chunks.size(), 1U);
  EXPECT_TRUE(request.cancel(engine, true));
  const Taken taken = take();
  EXPECT_EQ(taken.chunks.size(), 0U) << "nor its other parts";
  EXPECT_EQ(taken.withdrawn.size(), 1U);
  EXPECT_EQ(engine.stats().running_items, 0U);
}

TEST_F(OutletTest, ACancelWakesWhoTakes) {
  const RemoteRequest request = sent(engine, {1});
  const Chunk chunk = take_one();
  Taken taken;
  std::atomic<Got> got{Got::kNothing};
  {
    Thread sender([&] { got = egress->take(kPlenty, soon(), taken); });
    EXPECT_TRUE(eventually([&] { return sender.asleep(); }));
    EXPECT_TRUE(request.cancel(engine, true));
  }
  EXPECT_EQ(got, Got::kSomething);
  EXPECT_EQ(taken.withdrawn, Ids{chunk.id});
  EXPECT_FALSE(answer(out(), chunk));
  EXPECT_TRUE(request.ends_as(Outcome::kCancelled));
}

TEST_F(OutletTest, DeadlinesAreWatchedByWhoTakes) {
  Chunk chunk;
  const RemoteRequest request = taken_before_it_expires(chunk);
  EXPECT_EQ(chunk.deadline, request.request().deadline);
  Taken taken;
  EXPECT_EQ(egress->take(0, soon(), taken), Got::kSomething);
  EXPECT_EQ(taken.withdrawn, Ids{chunk.id});
  EXPECT_FALSE(answer(out(), chunk)) << "too late";
  EXPECT_TRUE(request.ends_as(Outcome::kExpired));
}

TEST_F(OutletTest, WhatHasExpiredDoesNotLeave) {
  const RemoteRequest queued = sent(engine, {1}, {.deadline = Clock::now() + milliseconds(1)});
  pass_time_until(queued.request().deadline);
  EXPECT_EQ(poll(), Got::kNothing);
  EXPECT_TRUE(queued.ends_as(Outcome::kExpired));
}

TEST_F(OutletTest, ATimerThreadWatchesTheDeadlinesWhileTheOtherIsElsewhere) {
  std::atomic<bool> waits{false};
  const auto timer = std::make_unique<Thread>([&] {
    Sleeping sleeping;
    for (waits = true; engine.wait_for_deadline(sleeping.waiter()) != Engine::Ready::kClosed;) {
      EndedRequests ended;
      engine.expire(ended);
      ipc::publish(ended);
    }
  });
  EXPECT_TRUE(eventually([&] { return waits && timer->asleep(); }));
  Chunk chunk;
  const RemoteRequest request = taken_before_it_expires(chunk);
  EXPECT_TRUE(request.ends_as(Outcome::kExpired));
  EXPECT_EQ(take(0).withdrawn, Ids{chunk.id});
  const RemoteRequest queued = sent(engine, {1}, {.deadline = Clock::now() + milliseconds(10)});
  EXPECT_TRUE(queued.ends_as(Outcome::kExpired));
  egress->stop();
  const RemoteRequest later = sent(engine, {1}, {.deadline = Clock::now() + milliseconds(10)});
  EXPECT_TRUE(later.ends_as(Outcome::kExpired)) << "also where nobody takes any more";
  close_remote(engine, true);
  EXPECT_TRUE(eventually([&] { return timer->finished(); }));
}

TEST_F(OutletTest, InterruptEndsThisTakeOrTheNext) {
  egress->interrupt();
  take(kPlenty, Got::kNothing);
  std::atomic<Got> got{Got::kSomething};
  {
    Thread sender([&] {
      Taken taken;
      got = egress->take(kPlenty, soon(), taken);
    });
    EXPECT_TRUE(eventually([&] { return sender.asleep(); }));
    egress->interrupt();
  }
  EXPECT_EQ(got, Got::kNothing);
}

TEST_F(OutletTest, ASignalInterruptsTake) {
  std::atomic<Got> got{Got::kSomething};
  Thread sender([&] {
    Taken taken;
    got = egress->take(kPlenty, soon(), taken);
  });
  EXPECT_TRUE(sender.interrupt_until([&] { return sender.finished(); }));
  EXPECT_EQ(got, Got::kInterrupted);
}

TEST_F(OutletTest, ADrainedEngineEndsTakeWhenNothingIsInFlight) {
  const RemoteRequest request = sent(engine, {1});
  const RemoteRequest cancelled = sent(engine, {1});
  close_remote(engine, true);
  const Taken taken = take();
  ASSERT_EQ(taken.chunks.size(), 2U);
  EXPECT_EQ(poll(), Got::kNothing) << "what is in flight may still be cancelled or expire";
  EXPECT_TRUE(answer(out(), taken.chunks[0]));
  std::atomic<int> calls{0};
  {
    Thread sender([&] {
      Taken more;
      while (egress->take(kPlenty, soon(), more) == Got::kSomething) ++calls;
    });
    EXPECT_TRUE(eventually([&] { return sender.asleep(); }));
    EXPECT_TRUE(cancelled.cancel(engine, true));
  }
  EXPECT_EQ(calls, 1) << "reply of the cancel, and then of the end";
  take(kPlenty, Got::kStopped);
  EXPECT_TRUE(request.answered());
}

TEST_F(OutletTest, TheLastAnswerEndsTakeOfAClosedEngine) {
  const RemoteRequest request = sent(engine, {1});
  const Chunk chunk = take_one();
  close_remote(engine, true);
  std::atomic<Got> got{Got::kSomething};
  {
    Thread sender([&] {
      Taken taken;
      got = egress->take(kPlenty, soon(), taken);
    });
    EXPECT_TRUE(eventually([&] { return sender.asleep(); }));
    EXPECT_TRUE(answer(out(), chunk));
  }
  EXPECT_EQ(got, Got::kStopped);
}

TEST_F(OutletTest, AnAbortIsToldAsWithdrawals) {
  const RemoteRequest request = sent(engine, {1});
  const Chunk chunk = take_one();
  close_remote(engine, false);
  abort_remote(engine);
  EXPECT_TRUE(request.ends_as(Outcome::kClosed));
  EXPECT_EQ(take().withdrawn, Ids{chunk.id});
  take(kPlenty, Got::kStopped);
}

TEST_F(OutletTest, StopEndsWhatIsOutAndLeavesTheRest) {
  const RemoteRequest handed_out = sent(engine, {1});
  const RemoteRequest large = sent(engine, std::vector<int>(10, 1));
  Taken taken;
  while (taken.chunks.size() < 2) egress->take(1, soon(), taken);
  const RemoteRequest queued = sent(engine, {2});
  egress->stop();
  egress->stop();
  EXPECT_TRUE(handed_out.ends_as(Outcome::kClosed));
  EXPECT_TRUE(large.ends_as(Outcome::kClosed));
  EXPECT_FALSE(queued.done());
  EXPECT_FALSE(answer(out(), taken.chunks[0]));
  take(kPlenty, Got::kStopped);
  EXPECT_TRUE(queued.cancel(engine)) << "nobody has it";
  EXPECT_EQ(engine.stats().idle_workers, 0);
}

TEST_F(OutletTest, StopWakesWhoTakes) {
  std::atomic<Got> got{Got::kSomething};
  {
    Thread sender([&] {
      Taken taken;
      got = egress->take(kPlenty, soon(), taken);
    });
    EXPECT_TRUE(eventually([&] { return sender.asleep(); }));
    egress->stop();
  }
  EXPECT_EQ(got, Got::kStopped);
  EXPECT_EQ(engine.stats().idle_workers, 0);
}

TEST_F(OutletTest, RequestsMayOutliveIt) {
  std::unique_ptr<RemoteRequest> request = std::make_unique<RemoteRequest>(sent(engine, {1}));
  take_one();
  const RemoteRequest queued = sent(engine, {1});
  EXPECT_EQ(poll(), Got::kSomething);
  egress = std::make_unique<BrokerEgress>(engine, 4);  // the new one is there before the old one has gone
  EXPECT_TRUE(request->ends_as(Outcome::kClosed));
  request.reset();
  const RemoteRequest next = sent(engine, {3});
  EXPECT_TRUE(answer(out(), take_one()));
  EXPECT_TRUE(next.answered());
}

TEST_F(OutletTest, ItSleepsWithoutATimeWhileNothingHappens) {
  Thread sender([&] {
    Taken taken;
    egress->take(kPlenty, TimePoint::max(), taken);
  });
  const auto switches = [&] { return sender.voluntary_switches(); };
  EXPECT_TRUE(come_to_rest(switches, [&] { return sender.asleep(); }, milliseconds(50)));
  egress->interrupt();
}

// EndedCalls come late, twice and out of order, while callers cancel, time out, and wait.
TEST_F(OutletTest, EveryRequestEndsOnceUnderStress) {
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
        const Got got = egress->take(8, soon(), taken);
        if (got == Got::kStopped) return;
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

// Stop may meet everything else at any moment.
TEST_F(OutletTest, NothingIsLeftWhereStopComesInBetween) {
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
        while (short_lived.take(4, soon(), taken) == Got::kSomething) {
          for (const Chunk& chunk : taken.chunks) answer(short_lived.handed_out(), chunk);
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
