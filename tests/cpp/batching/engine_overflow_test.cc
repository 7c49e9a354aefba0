// The bounded queue: which requests wait for room, which are refused, and in which order they are admitted.

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using Admission = Engine::Admission;
using Wait = Completion::Wait;

constexpr EngineOptions kBlock{.batch_size = 2, .policy = PolicyKind::kGreedy, .max_queue = 4};
constexpr EngineOptions kReject{
    .batch_size = 2, .policy = PolicyKind::kGreedy, .max_queue = 4, .overflow = Overflow::kReject};

CallPtr waiting(Engine& engine, std::uint32_t items, const Terms& terms = {}) {
  CallPtr call = make_call(items, terms);
  EXPECT_EQ(submit(engine, call), Admission::kWaiting);
  return call;
}

// A producer that finds the queue full and sleeps until there is room.
class Producer {
 public:
  Producer(Engine& engine, CallPtr call, TimePoint deadline = TimePoint::max())
      : call_(std::move(call)), thread_([this, &engine, deadline] {
          Sleeping sleeping;
          result_ = engine.wait_for_room(*call_, sleeping.waiter(), deadline);
        }) {}

  bool asleep() const {
    return eventually([this] { return thread_.asleep(); });
  }
  bool returned() const { return thread_.finished(); }
  bool returns(Wait expected) const {
    return eventually([this] { return returned(); }) && result_ == expected;
  }
  Call& call() { return *call_; }
  Thread& thread() { return thread_; }

 private:
  const CallPtr call_;
  std::atomic<Wait> result_{Wait::kInterrupted};
  Thread thread_;
};

TEST(EngineOverflow, RequestsThatComeTogetherWaitForRoomOrAreAllRefused) {
  Engine engine(kReject);
  std::vector<CallPtr> calls;
  std::vector<Request*> requests;
  for (int i = 0; i < 3; ++i) {
    const CallPtr& call = calls.emplace_back(make_call(2));
    call->accepted = true;
    call->kept = call;
    requests.push_back(call.get());
  }
  EndedRequests refused;
  EXPECT_TRUE(engine.submit_accepted(requests, refused));
  EXPECT_EQ(engine.stats().queued_items, 4U);
  EXPECT_EQ(engine.stats().waiting_requests, 1);
  serve_all(engine);
  for (const CallPtr& call : calls) EXPECT_TRUE(call->answered());
  close(engine, true);
  const CallPtr late = make_call(1);
  requests = {late.get()};
  EXPECT_FALSE(engine.submit_accepted(requests, refused));
  EXPECT_EQ(refused.count, 0U);
  EXPECT_FALSE(late->done());
}

TEST(EngineOverflow, RejectRefusesARequestThatDoesNotFitAndKeepsNoHold) {
  Engine engine(kReject);
  const CallPtr fits = submitted(engine, 3);
  const CallPtr refused = make_call(2);
  EXPECT_EQ(submit(engine, refused), Admission::kFull);
  EXPECT_FALSE(refused->done());
  const CallPtr small = submitted(engine, 1);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.counters.rejected, 1U);
  EXPECT_EQ(stats.counters.submitted, 2U);
  EXPECT_EQ(stats.queued_items, 4U);
  EXPECT_EQ(stats.waiting_requests, 0);
  serve_all(engine);
  EXPECT_TRUE(small->answered());
}

TEST(EngineOverflow, ALargeRequestOfALowPriorityDelaysAHighOneByABatch) {
  for (const EngineOptions& options : {kBlock, kReject}) {
    Engine engine(options);
    const CallPtr bulk = submitted(engine, 100, {.priority = -1});
    Batch running = take(engine);
    const CallPtr interactive = submitted(engine, 1);
    answer(engine, running);
    Batch next = take(engine);
    EXPECT_EQ(next.ranges[0].request, interactive.get());
    answer(engine, next);
    serve_all(engine);
    EXPECT_TRUE(bulk->answered());
  }
}

TEST(EngineOverflow, WaitForRoomReturnsAtOnceIfTheRequestWasAdmitted) {
  Engine engine(kBlock);
  const CallPtr first = submitted(engine, 4);
  const CallPtr second = waiting(engine, 4);
  serve_all(engine);
  Sleeping sleeping;
  EXPECT_EQ(engine.wait_for_room(*second, sleeping.waiter(), TimePoint{}), Wait::kDone);
  EXPECT_TRUE(second->answered());
}

TEST(EngineOverflow, RoomWakesTheProducersWhoseRequestsFit) {
  Engine engine(kBlock);
  const CallPtr first = submitted(engine, 4);
  Producer second(engine, waiting(engine, 2));
  Producer third(engine, waiting(engine, 3));
  ASSERT_TRUE(second.asleep() && third.asleep());
  Batch batch = take(engine);
  EXPECT_TRUE(second.returns(Wait::kDone));
  EXPECT_FALSE(third.returned());
  answer(engine, batch);
  serve_all(engine);
  EXPECT_TRUE(third.returns(Wait::kDone));
  EXPECT_TRUE(third.call().answered());
}

TEST(EngineOverflow, ACancelledRequestMakesRoom) {
  Engine engine(kBlock);
  const CallPtr first = submitted(engine, 4);
  Producer second(engine, waiting(engine, 4));
  ASSERT_TRUE(second.asleep());
  EXPECT_TRUE(cancel(engine, *first));
  EXPECT_TRUE(second.returns(Wait::kDone));
  serve_all(engine);
}

TEST(EngineOverflow, TheEndOfAWaitingRequestWakesItsProducer) {
  Engine engine(kBlock);
  const CallPtr first = submitted(engine, 4);
  Producer second(engine, waiting(engine, 1));
  ASSERT_TRUE(second.asleep());
  EXPECT_TRUE(cancel(engine, second.call()));
  EXPECT_TRUE(second.returns(Wait::kDone));
  EXPECT_TRUE(second.call().ended_as(Outcome::kCancelled));
  serve_all(engine);
}

TEST(EngineOverflow, ARequestWhoseProducerGivesUpStaysInTheWaitingRoomUntilItIsEnded) {
  Engine engine(kBlock);
  const CallPtr first = submitted(engine, 4);
  Producer second(engine, waiting(engine, 1), Clock::now() + milliseconds(1));
  EXPECT_TRUE(second.returns(Wait::kTimeout));
  EXPECT_EQ(engine.stats().waiting_requests, 1);
  EXPECT_TRUE(end_early(engine, second.call(), Outcome::kExpired, false));
  EXPECT_EQ(engine.stats().waiting_requests, 0);
  EXPECT_TRUE(second.call().released());
  serve_all(engine);
}

TEST(EngineOverflow, ASignalInterruptsAProducerAndItMayWaitAgain) {
  Engine engine(kBlock);
  const CallPtr first = submitted(engine, 4);
  const CallPtr second = waiting(engine, 1);
  {
    Producer interrupted(engine, second, Clock::now() + hours(1));
    ASSERT_TRUE(interrupted.thread().interrupt_until([&] { return interrupted.returned(); }));
    EXPECT_TRUE(interrupted.returns(Wait::kInterrupted));
  }
  Producer again(engine, second);
  ASSERT_TRUE(again.asleep());
  serve_all(engine);
  EXPECT_TRUE(again.returns(Wait::kDone));
  EXPECT_TRUE(second->answered());
}

TEST(EngineOverflow, ASmallQueueServesAllOfManyProducers) {
  constexpr std::uint32_t kProducers = 6;
  constexpr std::uint32_t kCalls = 2'000 / kStressShare;
  constexpr std::uint64_t kAll = std::uint64_t{kProducers} * kCalls;
  Tally tally;
  {
    Engine engine(kBlock);
    Worker first(engine);
    Worker second(engine);
    std::deque<Thread> producers;
    for (std::uint32_t p = 0; p < kProducers; ++p) {
      producers.emplace_back([&engine, &tally, p] {
        Sleeping sleeping;
        for (std::uint32_t i = 0; i < kCalls; ++i) {
          const CallPtr call = make_call(1 + (i + p) % 5, {.tally = &tally});
          if (submit(engine, call) == Admission::kWaiting) {
            EXPECT_EQ(engine.wait_for_room(*call, sleeping.waiter(), TimePoint::max()), Wait::kDone);
          }
          if (i % 3 == 0) {
            EXPECT_EQ(wait_for(*call), Wait::kDone);
          }
        }
      });
    }
    EXPECT_TRUE(eventually([&] { return tally.of(Outcome::kAnswered) == kAll; }));
    producers.clear();
    const EngineStats stats = engine.stats();
    EXPECT_EQ(stats.counters.completed, kAll);
    EXPECT_EQ(stats.queued_items, 0U);
    EXPECT_EQ(stats.waiting_requests, 0);
  }
  EXPECT_EQ(tally.alive, 0);
}

}  // namespace
}  // namespace service_streamer::support
