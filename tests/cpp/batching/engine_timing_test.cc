// What a request knows of its batches after its end.

#include <gtest/gtest.h>

#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

constexpr EngineOptions kByFour{.batch_size = 4, .policy = PolicyKind::kGreedy};

TEST(EngineTiming, ARequestKnowsWhenItWasTakenAndItsBatch) {
  Engine engine(kByFour);
  const CallPtr first = submitted(engine, 1);
  const CallPtr second = submitted(engine, 2);
  Batch batch = take(engine);
  const TimePoint dispatched = batch.dispatched;
  answer(engine, batch);
  for (const CallPtr& call : {first, second}) {
    EXPECT_LE(call->arrived, call->taken);
    EXPECT_EQ(call->taken, dispatched);
    EXPECT_LE(call->taken, call->ended);
    EXPECT_EQ(call->batch_items, 3U);
    EXPECT_EQ(call->reason, CloseReason::kIdle);
  }
}

TEST(EngineTiming, ASplitRequestIsTakenWithItsFirstItems) {
  Engine engine(kByFour);
  const CallPtr large = submitted(engine, 7);
  Batch first = take(engine);
  const TimePoint taken = first.dispatched;
  EXPECT_EQ(first.reason, CloseReason::kFull);
  Batch last = take(engine);
  answer(engine, last);
  answer(engine, first);
  EXPECT_TRUE(large->answered());
  EXPECT_EQ(large->taken, taken);
  EXPECT_EQ(large->batch_items, 3U) << "of the last batch";
  EXPECT_EQ(large->reason, CloseReason::kIdle);
}

TEST(EngineTiming, ARequestThatRunsAgainAloneWasTakenBefore) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 2, {.context = context_of("context")});
  const CallPtr other = submitted(engine, 1);
  Batch batch = take(engine);
  const TimePoint taken = batch.dispatched;
  EXPECT_FALSE(postpone(engine, batch));
  serve_all(engine);
  EXPECT_TRUE(call->answered() && other->answered());
  EXPECT_EQ(call->taken, taken);
  EXPECT_EQ(call->batch_items, 2U);
  EXPECT_EQ(*call->context, "context");
}

TEST(EngineTiming, ARequestThatWasNeverTakenHasNoBatch) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  EXPECT_TRUE(cancel(engine, *call));
  EXPECT_EQ(call->batch_items, 0U);
}

}  // namespace
}  // namespace service_streamer::support
