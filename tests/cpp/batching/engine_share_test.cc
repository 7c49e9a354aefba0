// An engine whose policy has learned that workers should take only a share of the queue.

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

// Teaches the policy a model that takes a minute for each item and has no fixed cost. A minute is so long that a
// pause of this thread does not matter.
constexpr auto kEach = std::chrono::minutes(1);

void teach(Engine& engine) {
  for (int round = 0; round < 40; ++round) {
    const std::uint32_t items = round % 2 == 0 ? 4 : 24;
    const CallPtr call = submitted(engine, items);
    Batch batch = take(engine);
    ASSERT_GT(batch.items, 0U);
    batch.dispatched = Clock::now() - batch.items * kEach;
    answer(engine, batch);
    while (!call->done()) {  // with several workers the request may be cut
      Batch rest = take(engine);
      rest.dispatched = Clock::now() - rest.items * kEach;
      answer(engine, rest);
    }
  }
}

// Serves requests until `last` is done.
bool serves(Engine& engine, const CallPtr& last) {
  return eventually([&] {
    serve_all(engine);
    return last->done();
  });
}

TEST(EngineShare, TheRestIsDueAtOnceAndInOrder) {
  Engine engine(EngineOptions{.batch_size = 64});
  teach(engine);
  std::vector<CallPtr> calls;
  for (int call = 0; call < 32; ++call) calls.push_back(submitted(engine, 1));
  Batch first = take(engine);
  EXPECT_EQ(first.items, 16U);
  EXPECT_EQ(first.reason, CloseReason::kShare);
  Batch second = take(engine);
  EXPECT_EQ(second.items, 8U);
  answer(engine, first);
  for (int call = 0; call < 32; ++call) EXPECT_EQ(calls[static_cast<std::size_t>(call)]->done(), call < 16);
  answer(engine, second);
  EXPECT_TRUE(serves(engine, calls.back()));
  for (const CallPtr& call : calls) EXPECT_TRUE(call->answered());
}

TEST(EngineShare, ARequestIsSpreadOverIdleWorkers) {
  Engine engine(EngineOptions{.batch_size = 64, .workers = 2});
  teach(engine);
  const CallPtr call = submitted(engine, 32);
  Batch first = take(engine);
  EXPECT_EQ(first.items, 16U);
  Batch rest = take(engine);
  EXPECT_GT(rest.items, 0U);
  answer(engine, rest);
  EXPECT_FALSE(call->done());
  answer(engine, first);
  EXPECT_TRUE(serves(engine, call));
  EXPECT_TRUE(call->answered());
}

std::vector<CallPtr> submitted_with_key(Engine& engine, int calls, std::uint64_t key, TimePoint deadline) {
  std::vector<CallPtr> all;
  for (int i = 0; i < calls; ++i) {
    const CallPtr& call = all.emplace_back(make_call(1, {.deadline = deadline}));
    call->traits = std::make_shared<ItemTraits>(ItemTraits{.keys = {key}, .weights = {}});
    EXPECT_EQ(submit(engine, call), Engine::Admission::kQueued);
  }
  return all;
}

TEST(EngineShare, AnExpiredRequestDoesNotDecideTheShare) {
  Engine engine(EngineOptions{.batch_size = 64});
  teach(engine);
  const auto expired = submitted_with_key(engine, 2, 1, TimePoint{});
  const auto calls = submitted_with_key(engine, 16, 2, TimePoint::max());
  Batch batch = take(engine);
  EXPECT_EQ(batch.items, 8U);
  EXPECT_EQ(batch.reason, CloseReason::kShare);
  answer(engine, batch);
  EXPECT_TRUE(serves(engine, calls.back()));
}

TEST(EngineShare, IdleWorkersTakeOtherGroupsBeforePartsOfOne) {
  Engine engine(EngineOptions{.batch_size = 64, .workers = 4});
  teach(engine);
  CloseReason reason{};
  TimePoint until;
  std::deque<Sleeping> sleeping(4);
  std::deque<Engine::IdleWorker> workers;
  for (Sleeping& each : sleeping) {
    Engine::IdleWorker& worker = workers.emplace_back(each.waiter());
    ASSERT_EQ(engine.start_waiting(worker, reason, until), Engine::Ready::kNotYet);
  }
  std::vector<CallPtr> calls;
  for (const std::uint64_t key : {1, 2, 3}) {
    for (const CallPtr& call : submitted_with_key(engine, 16, key, TimePoint::max())) calls.push_back(call);
  }
  ASSERT_EQ(engine.start_waiting(workers.back(), reason, until), Engine::Ready::kBatch);
  Batch batch = cut(engine, reason);
  EXPECT_EQ(batch.items, 8U);
  for (Engine::IdleWorker& worker : workers) engine.stop_waiting(worker);
  answer(engine, batch);
  EXPECT_TRUE(serves(engine, calls.back()));
}

}  // namespace
}  // namespace service_streamer::support
