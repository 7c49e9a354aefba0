// Requests that come into an engine as bytes, and their results, which leave it as such.

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
using Got = BrokerIngress::Got;
using Submitted = BrokerIngress::Submitted;
using Ends = std::vector<EndedCall>;
using Ids = std::vector<std::uint64_t>;
using std::chrono::milliseconds;

Submitted submit_to(BrokerIngress& ingress, const ipc::SubmitHead& head, const Bytes& body) {
  BrokerIngress::Submission submission{.head = head, .body = body};
  ingress.submit({&submission, 1});
  return submission.submitted;
}

class InletTest : public testing::Test {
 protected:
  explicit InletTest(const EngineOptions& options = kServed)
      : owner(options, {.retries = 0, .address = {}}),
        ingress(std::make_unique<BrokerIngress>(owner.engine, *owner.server)) {}

  Submitted submit(std::uint64_t id, const std::vector<int>& items, TimePoint deadline = TimePoint::max()) const {
    return submit_to(*ingress, {.id = id, .priority = 0, .deadline = deadline}, request_of(items));
  }
  Ends take(std::size_t count = 1) const {
    Ends all;
    while (all.size() < count) {
      Ends ended;
      EXPECT_EQ(ingress->take(soon(), ended), Got::kSomething);
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
  Got poll() const {
    Ends ended;
    return ingress->take(Clock::now(), ended);
  }

  Owner owner;
  std::unique_ptr<BrokerIngress> ingress;
};

TEST_F(InletTest, ARequestIsAnswered) {
  owner.add_ready();
  EXPECT_EQ(submit(7, {1, 2, 3}), Submitted::kYes);
  const EndedCall end = take_one();
  EXPECT_EQ(end.id, 7U);
  EndedCall read;
  ASSERT_TRUE(parse_result(body_of(end), 3, read));
  ASSERT_EQ(read.pieces.size(), 1U);
  EXPECT_EQ(numbers_of(read.pieces[0].result.bytes), (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(poll(), Got::kNothing);
}

TEST_F(InletTest, ManyAreAndALargeOneToo) {
  owner.add_ready();
  owner.add_ready();
  for (int i = 1; i <= 100; ++i) EXPECT_EQ(submit(static_cast<std::uint64_t>(i), {i}), Submitted::kYes);
  EXPECT_EQ(submit(101, std::vector<int>(1'000, 5)), Submitted::kYes);
  std::set<std::uint64_t> seen;
  for (const EndedCall& end : take(101)) {
    EXPECT_EQ(end.outcome, Outcome::kAnswered);
    EXPECT_TRUE(seen.insert(end.id).second);
    EndedCall read;
    EXPECT_TRUE(parse_result(body_of(end), end.id == 101 ? 1'000 : 1, read));
  }
  EXPECT_EQ(seen.size(), 101U);
}

TEST_F(InletTest, WhatComesTogetherCanBeOneBatch) {
  owner.add_ready();
  ASSERT_TRUE(idle_workers_are(owner.engine, 1));
  // Or what woke it before may have it look in the midst of them.
  ASSERT_TRUE(eventually(io_thread_sleeps));
  std::vector<BrokerIngress::Submission> submissions(9);
  for (std::size_t i = 0; i < 8; ++i) submissions[i] = {.head = {.id = i + 1}, .body = request_of({1})};
  submissions[3].body = Bytes::copy_of("nonsense");
  submissions[8] = {.head = {.id = 1}, .body = request_of({1})};
  ingress->submit(submissions);
  for (std::size_t i = 0; i < 9; ++i) {
    const Submitted expected = i == 3 ? Submitted::kMalformed : i == 8 ? Submitted::kKnown : Submitted::kYes;
    EXPECT_EQ(submissions[i].submitted, expected) << i;
    EXPECT_EQ(submissions[i].items, i == 3 ? 0U : 1U);
  }
  EXPECT_EQ(take(7).size(), 7U);
  EXPECT_EQ(owner.engine.stats().counters.batches, 1U);
}

TEST_F(InletTest, GoInBeyondTheBoundOfTheQueue) {
  Owner full({.batch_size = 1, .policy = PolicyKind::kGreedy, .max_queue = 2, .overflow = Overflow::kReject});
  BrokerIngress into(full.engine, *full.server);
  for (std::uint64_t id = 1; id <= 50; ++id) {
    EXPECT_EQ(submit_to(into, {.id = id}, request_of({1, 2})), Submitted::kYes);
  }
  full.add_ready();
  std::size_t answered = 0;
  while (answered < 50) {
    Ends ended;
    ASSERT_EQ(into.take(soon(), ended), Got::kSomething);
    answered += ended.size();
  }
}

TEST_F(InletTest, ErrorsComeAsTheyAre) {
  owner.add_ready([](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    add_one(batch, reply);
    reply.results[0].kind = ipc::ResultKind::kError;
    return true;
  });
  EXPECT_EQ(submit(1, {1, 2}), Submitted::kYes);
  const EndedCall end = take_one();
  EXPECT_EQ(end.outcome, Outcome::kFailed);
  EndedCall read;
  EXPECT_TRUE(parse_result(body_of(end), 2, read));
}

TEST_F(InletTest, TheDeathOfAWorkerIsALossWithANote) {
  owner.add_ready([](const ipc::BatchMessage&, ipc::ReplyMessage&) { return false; });
  EXPECT_EQ(submit(1, {1, 2}), Submitted::kYes);
  const EndedCall end = take_one();
  EXPECT_EQ(end.outcome, Outcome::kLost);
  EXPECT_NE(end.note.find("died with the batch"), std::string::npos) << end.note;
}

TEST_F(InletTest, SoIsAModelThatCannotBeLoaded) {
  EXPECT_EQ(submit(1, {1}), Submitted::kYes);
  owner.server->set_failure("init: no weights");
  EXPECT_EQ(submit(2, {1}), Submitted::kYes);
  for (const EndedCall& end : take(2)) {
    EXPECT_EQ(end.outcome, Outcome::kLost);
    EXPECT_EQ(end.note, "init: no weights");
  }
}

TEST_F(InletTest, AWorkerThatSendsSharedMemoryIsRefused) {
  const auto pool = ipc::SharedPool::make();
  owner.add_ready([pool](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    add_one(batch, reply);
    reply.results[0].blocks.push_back(ipc::support::block_of(*pool, "block"));
    return true;
  });
  EXPECT_EQ(submit(1, {1}), Submitted::kYes);
  const EndedCall end = take_one();
  EXPECT_EQ(end.outcome, Outcome::kLost);
  EXPECT_NE(end.note, "");
  EndedCall read;
  EXPECT_TRUE(parse_result(body_of(end), 1, read));
}

TEST_F(InletTest, MalformedOnesAndKnownNumbersAreRefused) {
  EXPECT_EQ(submit_to(*ingress, {.id = 1}, Bytes::copy_of("nonsense")), Submitted::kMalformed);
  EXPECT_EQ(submit_to(*ingress, {.id = 1}, Bytes{}), Submitted::kMalformed);
  EXPECT_EQ(submit(1, {1}), Submitted::kYes);
  EXPECT_EQ(submit(1, {2}), Submitted::kKnown);
  owner.add_ready();
  EXPECT_EQ(take_one().outcome, Outcome::kAnswered);
  EXPECT_EQ(submit(1, {3}), Submitted::kYes) << "a number may come again once its request was taken";
  EXPECT_EQ(take_one().outcome, Outcome::kAnswered);
}

TEST_F(InletTest, CancelledOnesAreTakenWithoutAResult) {
  Gate gate;
  owner.add_ready(gate.before());
  EXPECT_EQ(submit(1, {1}), Submitted::kYes);
  ASSERT_TRUE(gate.entered());
  EXPECT_EQ(submit(2, {1}), Submitted::kYes);
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
  EXPECT_EQ(poll(), Got::kNothing);
}

TEST_F(InletTest, DeadlinesAreWatchedByTheServer) {
  EXPECT_EQ(submit(1, {1}, Clock::now() + milliseconds(5)), Submitted::kYes);
  EXPECT_EQ(submit(2, {1}, TimePoint::min()), Submitted::kYes);
  for (const EndedCall& end : take(2)) EXPECT_EQ(end.outcome, Outcome::kExpired);
}

TEST_F(InletTest, WhatTheEngineEndsWhenItClosesIsTakenToo) {
  EXPECT_EQ(submit(1, {1}), Submitted::kYes);
  close_remote(owner.engine, false);
  EXPECT_EQ(take_one().outcome, Outcome::kNone) << "no worker had any of it";
  EXPECT_EQ(submit(2, {1}), Submitted::kClosed);
  EXPECT_EQ(poll(), Got::kNothing);
  ingress->stop();
  EXPECT_EQ(poll(), Got::kStopped);
}

TEST_F(InletTest, StopCancelsWhatIsLeftAndLetsNothingIn) {
  Gate gate;
  owner.add_ready(gate.before());
  EXPECT_EQ(submit(1, {1}), Submitted::kYes);
  ASSERT_TRUE(gate.entered());
  EXPECT_EQ(submit(2, {1}), Submitted::kYes);
  ingress->stop();
  ingress->stop();
  EXPECT_EQ(submit(3, {1}), Submitted::kClosed);
  for (const EndedCall& end : take(2)) EXPECT_EQ(end.outcome, Outcome::kCancelled);
  EXPECT_EQ(poll(), Got::kStopped);
  EXPECT_EQ(poll(), Got::kStopped);
}

TEST_F(InletTest, WhatHadEndedBeforeStopIsStillTaken) {
  owner.add_ready();
  EXPECT_EQ(submit(1, {1}), Submitted::kYes);
  ASSERT_TRUE(eventually([&] { return owner.engine.stats().counters.completed == 1; }));
  ingress->stop();
  EXPECT_EQ(take_one().outcome, Outcome::kAnswered);
  EXPECT_EQ(poll(), Got::kStopped);
}

TEST_F(InletTest, AnEndAnInterruptAndStopWakeWhoTakes) {
  std::atomic<int> ended{0};
  std::atomic<int> nothing{0};
  const auto taker = std::make_unique<Thread>([&] {
    for (;;) {
      Ends ends;
      const Got got = ingress->take(soon(), ends);
      if (got == Got::kStopped) return;
      ended += static_cast<int>(ends.size());
      if (got == Got::kNothing) ++nothing;
    }
  });
  EXPECT_TRUE(eventually([&] { return taker->asleep(); }));
  EXPECT_EQ(submit(1, {1}), Submitted::kYes);
  const Ids ids{1};
  ingress->cancel(ids);
  EXPECT_TRUE(eventually([&] { return ended == 1 && taker->asleep(); }));
  ingress->interrupt();
  EXPECT_TRUE(eventually([&] { return nothing == 1; }));
  ingress->stop();
  EXPECT_TRUE(eventually([&] { return taker->finished(); }));
}

TEST_F(InletTest, ASignalInterruptsTake) {
  std::atomic<Got> got{Got::kSomething};
  Thread taker([&] {
    Ends ended;
    got = ingress->take(soon(), ended);
  });
  EXPECT_TRUE(taker.interrupt_until([&] { return taker.finished(); }));
  EXPECT_EQ(got, Got::kInterrupted);
}

TEST_F(InletTest, NothingIsLeftOfOneThatGoesInTheMidst) {
  Gate gate;
  owner.add_ready(gate.before());
  EXPECT_EQ(submit(1, {1}), Submitted::kYes);
  ASSERT_TRUE(gate.entered());
  EXPECT_EQ(submit(2, {1}), Submitted::kYes);
  ingress.reset();
  gate.open();
  EXPECT_TRUE(eventually([&] { return owner.engine.stats().running_items == 0; }));
  EXPECT_EQ(owner.engine.stats().counters.cancelled, 2U);
}

// Requests come in several threads, some are cancelled right away, workers die; each is taken once.
TEST_F(InletTest, EveryRequestIsTakenOnceUnderStress) {
  constexpr int kThreads = 3;
  constexpr int kRounds = 2'000 / kStressShare;
  owner.add_ready();
  owner.add_ready();
  std::map<std::uint64_t, int> taken;
  {
    Thread taker([&] {
      for (Ends ended; ingress->take(soon(), ended) == Got::kSomething; ended.clear()) {
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
            EXPECT_EQ(submit(id, std::vector<int>(1 + id % 12, round), deadline), Submitted::kYes);
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

// Stop and cancel may meet a submit at any moment.
TEST_F(InletTest, NothingIsLeftWhereStopComesInBetween) {
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
          for (const BrokerIngress::Submission& one : pair) accepted += one.submitted == Submitted::kYes ? 1 : 0;
        }
      });
      Thread canceller([&] {
        for (std::uint64_t id = 1; id <= 20; ++id) short_lived.cancel({&id, 1});
      });
      Thread taker([&] {
        for (Ends ended; short_lived.take(soon(), ended) == Got::kSomething; ended.clear()) {
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
