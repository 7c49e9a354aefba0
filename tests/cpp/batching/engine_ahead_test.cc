// A busy worker that can have its next batch ready gets only a batch that cannot grow any more.

#include <gtest/gtest.h>

#include "service_streamer/batching/engine.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

using Ready = Engine::Ready;

class PollAhead : public testing::Test {
 protected:
  ~PollAhead() override {
    close(engine, false);
    abort(engine);
  }

  Ready poll_ahead() { return engine.poll_ahead(reason); }

  Engine engine{EngineOptions{.batch_size = 4, .policy = PolicyKind::kGreedy}};
  CloseReason reason{};
};

TEST_F(PollAhead, LeavesABatchThatCanGrow) {
  EXPECT_EQ(poll_ahead(), Ready::kNotYet);
  const CallPtr three = submitted(engine, 3);
  EXPECT_EQ(poll_ahead(), Ready::kNotYet);
  EXPECT_EQ(engine.poll(reason), Ready::kBatch) << "an idle worker would take it";
  engine.decline();
}

TEST_F(PollAhead, TakesAFullBatch) {
  const CallPtr some = submitted(engine, 3);
  const CallPtr more = submitted(engine, 3);
  ASSERT_EQ(poll_ahead(), Ready::kBatch);
  EXPECT_EQ(reason, CloseReason::kFull);
  EXPECT_EQ(poll_ahead(), Ready::kNotYet) << "the rest is not a full batch";
  Batch batch = cut(engine, reason);
  EXPECT_EQ(batch.items, 4U);
  answer(engine, batch);
}

TEST_F(PollAhead, LeavesItemsThatAreReservedForAnotherWorker) {
  Sleeping sleeping;
  Engine::IdleWorker idle(sleeping.waiter());
  TimePoint until;
  ASSERT_EQ(engine.start_waiting(idle, reason, until), Ready::kNotYet);
  const CallPtr full = submitted(engine, 4);
  EXPECT_EQ(poll_ahead(), Ready::kNotYet);
  engine.stop_waiting(idle);
  EXPECT_EQ(poll_ahead(), Ready::kBatch);
  engine.decline();
}

TEST_F(PollAhead, LeavesALowPriorityWhileAHigherOneIsExpected) {
  const CallPtr high = submitted(engine, 4, {.priority = 1});
  const CallPtr low = submitted(engine, 8);
  ASSERT_EQ(poll_ahead(), Ready::kBatch);
  Batch batch = cut(engine, reason);
  EXPECT_EQ(batch.ranges[0].request, high.get());
  EXPECT_EQ(poll_ahead(), Ready::kNotYet);
  EXPECT_EQ(engine.poll(reason), Ready::kBatch) << "an idle worker takes it";
  engine.decline();
  answer(engine, batch);
}

TEST_F(PollAhead, TakesTheRestOnceTheEngineIsClosed) {
  const CallPtr one = submitted(engine, 1);
  close(engine, true);
  ASSERT_EQ(poll_ahead(), Ready::kBatch);
  EXPECT_EQ(reason, CloseReason::kDrain);
  Batch batch = cut(engine, reason);
  EXPECT_EQ(poll_ahead(), Ready::kClosed);
  answer(engine, batch);
}

}  // namespace
}  // namespace service_streamer::support
