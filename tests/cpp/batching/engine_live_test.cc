// Workers that take further batches before the earlier ones are back: the limit of the weight holds for all of them.

#include <gtest/gtest.h>

#include <initializer_list>

#include "batching/engine_groups_testing.h"
#include "support/threads.h"

namespace service_streamer::support {
namespace {

using Ready = Engine::Ready;
using State = IdleWorker::State;

EngineOptions one_item(double max_weight, bool padded = false) {
  EngineOptions options = weighted(max_weight, padded);
  options.batch_size = 1;
  return options;
}

CallPtr weighing(Engine& engine, double weight, const Terms& terms = {}) {
  return submitted_as(engine, {}, {weight}, terms);
}

ItemWeights live(std::initializer_list<double> weights) {
  ItemWeights all;
  for (const double weight : weights) all.add(weight);
  return all;
}

// Takes the next item beside live ones, and answers it. nullptr: there is none, or no room.
Request* served_beside(Engine& engine, const ItemWeights& others) {
  Batch batch = take(engine, others);
  if (batch.items == 0) return nullptr;
  Request* request = batch.ranges.front().request;
  answer(engine, batch);
  return request;
}

TEST(EngineLive, AnItemIsTakenIfItFitsBesideTheOthers) {
  Engine engine(one_item(10));
  const CallPtr first = weighing(engine, 4);
  const CallPtr second = weighing(engine, 4);
  EXPECT_EQ(served_beside(engine, live({5, 2})), nullptr);
  EXPECT_EQ(served_beside(engine, live({5, 1})), first.get());
  EXPECT_EQ(served_beside(engine, {}), second.get());
}

TEST(EngineLive, WithPaddingTheHeaviestCountsForAll) {
  Engine engine(one_item(10, true));
  const CallPtr small = weighing(engine, 1);
  EXPECT_EQ(served_beside(engine, live({4, 1})), nullptr) << "3 x 4";
  EXPECT_EQ(served_beside(engine, live({3, 1})), small.get()) << "3 x 3";
  const CallPtr large = weighing(engine, 4);
  EXPECT_EQ(served_beside(engine, live({1, 1})), nullptr) << "3 x 4";
  EXPECT_EQ(served_beside(engine, live({1})), large.get()) << "2 x 4";
}

TEST(EngineLive, AnItemThatIsHeavierThanTheLimitIsAlone) {
  Engine engine(one_item(10));
  const CallPtr heavy = weighing(engine, 99);
  EXPECT_EQ(served_beside(engine, live({0})), nullptr);
  EXPECT_EQ(served_beside(engine, {}), heavy.get());
  const CallPtr other = weighing(engine, 1);
  EXPECT_EQ(served_beside(engine, live({99})), nullptr);
  EXPECT_EQ(served_beside(engine, {}), other.get());
}

TEST(EngineLive, ARequestWithoutRoomHoldsUpThoseBehindItOnly) {
  Engine engine(one_item(10));
  const CallPtr heavy = weighing(engine, 8);
  const CallPtr behind = weighing(engine, 1);
  EXPECT_EQ(served_beside(engine, live({5})), nullptr);
  const CallPtr before = weighing(engine, 1, {.priority = 1});
  EXPECT_EQ(served_beside(engine, live({5})), before.get());
  cancel(engine, *heavy);
  EXPECT_EQ(served_beside(engine, live({5})), behind.get());
}

TEST(EngineLive, ARequestWakesAWorkerThatHasRoom) {
  Engine engine(one_item(10));
  Sleeping first_sleep, second_sleep;
  IdleWorker first(first_sleep.waiter()), second(second_sleep.waiter());
  CloseReason reason{};
  TimePoint until;
  EXPECT_EQ(engine.start_waiting(first, reason, until, live({4})), Ready::kNotYet);
  EXPECT_EQ(engine.start_waiting(second, reason, until, live({9})), Ready::kNotYet);
  const CallPtr call = weighing(engine, 5);
  EXPECT_EQ(first.state, State::kReserved);
  EXPECT_EQ(second.state, State::kIdle) << "it was idle last";
  EXPECT_EQ(engine.start_waiting(first, reason, until, live({4})), Ready::kBatch);
  Batch batch = cut(engine, reason, live({4}));
  EXPECT_EQ(batch.items, 1U);
  answer(engine, batch);
  const CallPtr next = weighing(engine, 5);
  EXPECT_EQ(second.state, State::kIdle) << "no worker has room";
  EXPECT_EQ(engine.start_waiting(second, reason, until, live({3})), Ready::kBatch);
  batch = cut(engine, reason, live({3}));
  answer(engine, batch);
  EXPECT_TRUE(next->answered());
}

TEST(EngineLive, AReservationIsGivenUpIfAnotherRequestGoesFirstMeanwhile) {
  Engine engine(one_item(10));
  const CallPtr small = weighing(engine, 1);
  CloseReason reason{};
  ASSERT_EQ(engine.poll(reason, live({5})), Ready::kBatch);
  const CallPtr heavy = weighing(engine, 8, {.priority = 1});
  EXPECT_EQ(cut(engine, reason, live({5})).items, 0U);
  EXPECT_EQ(served_beside(engine, live({5})), nullptr);
  EXPECT_EQ(served_beside(engine, {}), heavy.get());
  EXPECT_EQ(served_beside(engine, live({5})), small.get());
}

}  // namespace
}  // namespace service_streamer::support
