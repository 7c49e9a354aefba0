// Requests that come into an engine as bytes, and their results.

#include "service_streamer/broker/broker_ingress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "support/broker_bodies.h"
#include "support/client_link.h"
#include "support/ipc.h"

namespace service_streamer::support {
namespace {

using ipc::BrokerIngress;
using TakeStatus = BrokerIngress::TakeStatus;
using SubmitStatus = BrokerIngress::SubmitStatus;
using Ends = std::vector<EndedCall>;
using Ids = std::vector<std::uint64_t>;
using std::chrono::milliseconds;

SubmitStatus submit_to(BrokerIngress& ingress, const ipc::SubmitHead& head, const Bytes& body) {
  BrokerIngress::Submission submission{.head = head, .body = body};
  ingress.submit({&submission, 1});
  return submission.submitted;
}

class BrokerIngressTest : public testing::Test {
 protected:
  explicit BrokerIngressTest(const EngineOptions& options = kServed)
      : owner(options, {.retries = 0, .address = {}}),
        ingress(std::make_unique<BrokerIngress>(owner.engine, *owner.server)) {}

  SubmitStatus submit(std::uint64_t id, const std::vector<int>& items, TimePoint deadline = TimePoint::max()) const {
    return submit_to(*ingress, {.id = id, .priority = 0, .deadline = deadline}, request_of(items));
  }
  Ends take(std::size_t count = 1) const {
    Ends all;
    while (all.size() < count) {
      Ends ended;
      EXPECT_EQ(ingress->take(soon(), ended), TakeStatus::kTaken);
      if (ended.empty()) break;
      for (EndedCall& end : ended) all.push_back(std::move(end));
    }
    return all;
  }
  EndedCall take_one() const {
    Ends ended = take();
    EXPECT_EQ(ended.size(), 1U);
    return ended.empty() ? EndedCall{} : ended.front();
  }
  TakeStatus poll() const {
    Ends ended;
    return ingress->take(Clock::now(), ended);
  }

  Owner owner;
  std::unique_ptr<BrokerIngress> ingress;
};

TEST_F(BrokerIngressTest, ARequestIsAnswered) {
  owner.add_ready();
  EXPECT_EQ(submit(7, {1, 2, 3}), SubmitStatus::kAccepted);
  const EndedCall end = take_one();
  EXPECT_EQ(end.id, 7U);
  EndedCall read;
  ASSERT_TRUE(parse_result(body_of(end), 3, read));
  ASSERT_EQ(read.pieces.size(), 1U);
  EXPECT_EQ(numbers_of(read.pieces[0].result.bytes), (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(poll(), TakeStatus::kNothing);
}

TEST_F(BrokerIngressTest, ManyRequestsAndALargeOneAreAnswered) {
  owner.add_ready();
  owner.add_ready();
  for (int i = 1; i <= 100; ++i) EXPECT_EQ(submit(static_cast<std::uint64_t>(i), {i}), SubmitStatus::kAccepted);
  EXPECT_EQ(submit(101, std::vector<int>(1'000, 5)), SubmitStatus::kAccepted);
  std::set<std::uint64_t> seen;
  for (const EndedCall& end : take(101)) {
    EXPECT_EQ(end.outcome, Outcome::kAnswered);
    EXPECT_TRUE(seen.insert(end.id).second);
    EndedCall read;
    EXPECT_TRUE(parse_result(body_of(end), end.id == 101 ? 1'000 : 1, read));
  }
  EXPECT_EQ(seen.size(), 101U);
}

TEST_F(BrokerIngressTest, RequestsSubmittedTogetherCanBeOneBatch) {
  owner.add_ready();
  ASSERT_TRUE(idle_workers_are(owner.engine, 1));
  // Otherwise an earlier wake-up could make the server cut a batch between the submits.
  ASSERT_TRUE(eventually(io_thread_sleeps));
  std::vector<BrokerIngress::Submission> submissions(9);
  for (std::size_t i = 0; i < 8; ++i) submissions[i] = {.head = {.id = i + 1}, .body = request_of({1})};
  submissions[3].body = Bytes::copy_of("nonsense");
  submissions[8] = {.head = {.id = 1}, .body = request_of({1})};
  ingress->submit(submissions);
  for (std::size_t i = 0; i < 9; ++i) {
    const SubmitStatus expected = i == 3   ? SubmitStatus::kMalformed
                                  : i == 8 ? SubmitStatus::kDuplicate
                                           : SubmitStatus::kAccepted;
    EXPECT_EQ(submissions[i].submitted, expected) << i;
    EXPECT_EQ(submissions[i].items, i == 3 ? 0U : 1U);
  }
  EXPECT_EQ(take(7).size(), 7U);
  EXPECT_EQ(owner.engine.stats().counters.batches, 1U);
}

TEST_F(BrokerIngressTest, RequestsBeyondMaxQueueWaitForRoom) {
  Owner full({.batch_size = 1, .policy = PolicyKind::kGreedy, .max_queue = 2, .overflow = Overflow::kReject});
  BrokerIngress into(full.engine, *full.server);
  for (std::uint64_t id = 1; id <= 50; ++id) {
    EXPECT_EQ(submit_to(into, {.id = id}, request_of({1, 2})), SubmitStatus::kAccepted);
  }
  full.add_ready();
  std::size_t answered = 0;
  while (answered < 50) {
    Ends ended;
    ASSERT_EQ(into.take(soon(), ended), TakeStatus::kTaken);
    answered += ended.size();
  }
}

TEST_F(BrokerIngressTest, ErrorsArriveUnchanged) {
  owner.add_ready([](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    add_one(batch, reply);
    reply.results[0].kind = ipc::ResultKind::kError;
    return true;
  });
  EXPECT_EQ(submit(1, {1, 2}), SubmitStatus::kAccepted);
  const EndedCall end = take_one();
  EXPECT_EQ(end.outcome, Outcome::kFailed);
  EndedCall read;
  EXPECT_TRUE(parse_result(body_of(end), 2, read));
}

TEST_F(BrokerIngressTest, TheDeathOfAWorkerIsALossWithANote) {
  owner.add_ready([](const ipc::BatchMessage&, ipc::ReplyMessage&) { return false; });
  EXPECT_EQ(submit(1, {1, 2}), SubmitStatus::kAccepted);
  const EndedCall end = take_one();
  EXPECT_EQ(end.outcome, Outcome::kLost);
  EXPECT_NE(end.note.find("died with the batch"), std::string::npos) << end.note;
}

TEST_F(BrokerIngressTest, AModelThatCannotBeLoadedIsALossWithANote) {
  EXPECT_EQ(submit(1, {1}), SubmitStatus::kAccepted);
  owner.server->set_failure("init: no weights");
  EXPECT_EQ(submit(2, {1}), SubmitStatus::kAccepted);
  for (const EndedCall& end : take(2)) {
    EXPECT_EQ(end.outcome, Outcome::kLost);
    EXPECT_EQ(end.note, "init: no weights");
  }
}

TEST_F(BrokerIngressTest, AResultInSharedMemoryIsALoss) {
  const auto pool = ipc::SharedPool::make();
  owner.add_ready([pool](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    add_one(batch, reply);
    reply.results[0].blocks.push_back(ipc::support::block_of(*pool, "block"));
    return true;
  });
  EXPECT_EQ(submit(1, {1}), SubmitStatus::kAccepted);
  const EndedCall end = take_one();
  EXPECT_EQ(end.outcome, Outcome::kLost);
  EXPECT_NE(end.note, "");
  EndedCall read;
  EXPECT_TRUE(parse_result(body_of(end), 1, read));
}

TEST_F(BrokerIngressTest, MalformedAndDuplicateRequestsAreRejected) {
  EXPECT_EQ(submit_to(*ingress, {.id = 1}, Bytes::copy_of("nonsense")), SubmitStatus::kMalformed);
  EXPECT_EQ(submit_to(*ingress, {.id = 1}, Bytes{}), SubmitStatus::kMalformed);
  EXPECT_EQ(submit(1, {1}), SubmitStatus::kAccepted);
  EXPECT_EQ(submit(1, {2}), SubmitStatus::kDuplicate);
  owner.add_ready();
  EXPECT_EQ(take_one().outcome, Outcome::kAnswered);
  EXPECT_EQ(submit(1, {3}), SubmitStatus::kAccepted) << "a number may come again once its request was taken";
  EXPECT_EQ(take_one().outcome, Outcome::kAnswered);
}

TEST_F(BrokerIngressTest, CancelledRequestsAreTakenWithoutAResult) {
  Gate gate;
  owner.add_ready(gate.before());
  EXPECT_EQ(submit(1, {1}), SubmitStatus::kAccepted);
  ASSERT_TRUE(gate.entered());
  EXPECT_EQ(submit(2, {1}), SubmitStatus::kAccepted);
  const Ids ids{2, 1, 99};
  ingress->cancel(ids);
  ingress->cancel(ids);
  std::set<std::uint64_t> seen;
  for (const EndedCall& end : take(2)) {
    EXPECT_EQ(end.outcome, Outcome::kCancelled);
    EXPECT_TRUE(end.pieces.empty());
    seen.insert(end.id);
  }
  EXPECT_EQ(seen, (std::set<std::uint64_t>{1, 2}));
  gate.open();
  EXPECT_TRUE(eventually([&] { return owner.engine.stats().running_items == 0; }));
  EXPECT_EQ(poll(), TakeStatus::kNothing);
}

TEST_F(BrokerIngressTest, TheServerWatchesDeadlines) {
  EXPECT_EQ(submit(1, {1}, Clock::now() + milliseconds(5)), SubmitStatus::kAccepted);
  EXPECT_EQ(submit(2, {1}, TimePoint::min()), SubmitStatus::kAccepted);
  for (const EndedCall& end : take(2)) EXPECT_EQ(end.outcome, Outcome::kExpired);
}

TEST_F(BrokerIngressTest, RequestsThatTheEngineEndsWhenItClosesAreTakenToo) {
  EXPECT_EQ(submit(1, {1}), SubmitStatus::kAccepted);
  close_remote(owner.engine, false);
  EXPECT_EQ(take_one().outcome, Outcome::kNone) << "no worker had any of it";
  EXPECT_EQ(submit(2, {1}), SubmitStatus::kClosed);
  EXPECT_EQ(poll(), TakeStatus::kNothing);
  ingress->stop();
  EXPECT_EQ(poll(), TakeStatus::kStopped);
}

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
          for (std::size_t i = 0; i < 2; ++i) pair[i] = {.head = {.id = id + i}, .body = request_of({1})};
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
