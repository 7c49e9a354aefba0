// Failed batches that are split in every shape and run again in pieces.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

using Sizes = std::vector<std::uint32_t>;

constexpr EngineOptions kGreedy{.batch_size = 64, .policy = PolicyKind::kGreedy};

// A batch of requests of the given sizes.
struct Scene {
  explicit Scene(const Sizes& sizes) : engine(kGreedy) {
    for (const std::uint32_t size : sizes) calls.push_back(submitted(engine, size));
    batch = take(engine);
  }

  Engine engine;
  std::vector<CallPtr> calls;
  Batch batch;
};

Sizes sizes_of(const Batch& batch) {
  Sizes sizes;
  for (const RequestRange& range : batch.ranges) sizes.push_back(range.count);
  return sizes;
}

Batch split(Engine& engine, Batch& batch, const BatchCut& cut) {
  Batch first;
  engine.split(batch, cut, first);
  return first;
}

// The cut after the first `requests` requests.
BatchCut between_requests(const Batch& batch, std::size_t requests) {
  BatchCut cut{.ranges = requests};
  for (std::size_t i = 0; i < requests; ++i) cut.items += batch.ranges[i].count;
  return cut;
}

struct Halves {
  Sizes first;
  Sizes second;
  bool operator==(const Halves&) const = default;
};

// Returns the halves of a batch of these sizes that is cut in the middle.
Halves halves_of(const Sizes& sizes) {
  Scene scene(sizes);
  Batch first = split(scene.engine, scene.batch, middle_of(scene.batch.ranges));
  Halves halves{sizes_of(first), sizes_of(scene.batch)};
  give_back(scene.engine, first, Outcome::kFailed);
  give_back(scene.engine, scene.batch, Outcome::kFailed);
  return halves;
}

// All batches of up to `most` items, as the sizes of their requests.
void for_all_shapes(std::uint32_t most, const std::function<void(const Sizes&)>& visit) {
  std::vector<Sizes> open{{}};
  while (!open.empty()) {
    const Sizes shape = open.back();
    open.pop_back();
    std::uint32_t items = 0;
    for (const std::uint32_t size : shape) items += size;
    if (!shape.empty()) visit(shape);
    for (std::uint32_t size = 1; items + size <= most; ++size) {
      open.push_back(shape);
      open.back().push_back(size);
    }
  }
}

// Splits a batch until no piece can be cut. Returns the pieces in order.
void pieces_of(Engine& engine, Batch batch, bool between_items, std::vector<Batch>& pieces) {
  const BatchCut cut = between_items ? middle_of(batch.ranges) : between_requests(batch, batch.ranges.size() / 2);
  if (cut.items == 0) {
    pieces.push_back(batch);
    return;
  }
  const Batch first = split(engine, batch, cut);
  EXPECT_TRUE(batch.rerun && first.rerun);
  pieces_of(engine, first, between_items, pieces);
  pieces_of(engine, batch, between_items, pieces);
}

TEST(EngineSplit, CutsInTheMiddleOfTheItems) {
  EXPECT_EQ(halves_of({2}), (Halves{{1}, {1}}));
  EXPECT_EQ(halves_of({7}), (Halves{{3}, {4}}));
  EXPECT_EQ(halves_of({1, 1}), (Halves{{1}, {1}}));
  EXPECT_EQ(halves_of({2, 2}), (Halves{{2}, {2}}));
  EXPECT_EQ(halves_of({9, 1}), (Halves{{5}, {4, 1}}));
  EXPECT_EQ(halves_of({1, 9}), (Halves{{1, 4}, {5}}));
  EXPECT_EQ(halves_of({1, 8, 1}), (Halves{{1, 4}, {4, 1}}));

  Scene scene({1});
  EXPECT_EQ(middle_of(scene.batch.ranges).items, 0U) << "one item cannot be cut";
  give_back(scene.engine, scene.batch, Outcome::kFailed);
}

TEST(EngineSplit, KeepsEveryItemOnceAndInOrderForAnyShape) {
  for_all_shapes(7, [](const Sizes& shape) {
    for (const bool between_items : {false, true}) {
      SCOPED_TRACE(::testing::PrintToString(shape) + (between_items ? " between items" : " between requests"));
      Scene scene(shape);
      const std::size_t items = scene.batch.items;
      std::vector<Batch> pieces;
      pieces_of(scene.engine, scene.batch, between_items, pieces);
      EXPECT_EQ(pieces.size(), between_items ? items : shape.size()) << "each piece has one item, or one request";
      EXPECT_EQ(scene.engine.stats().running_batches, static_cast<int>(pieces.size()));
      EXPECT_EQ(scene.engine.stats().running_items, items);
      std::size_t request = 0;
      std::uint32_t begin = 0;
      for (Batch& piece : pieces) {
        ASSERT_EQ(piece.ranges.size(), 1U);
        const RequestRange& range = piece.ranges[0];
        EXPECT_EQ(range.request, scene.calls[request].get());
        EXPECT_EQ(range.begin, begin);
        EXPECT_EQ(range.count, piece.items);
        begin += range.count;
        if (begin == shape[request]) ++request, begin = 0;
        answer(scene.engine, piece);
      }
      EXPECT_EQ(request, shape.size());
      for (const CallPtr& call : scene.calls) EXPECT_TRUE(call->answered() && call->released());
      EXPECT_EQ(scene.engine.stats().running_batches, 0);
      EXPECT_EQ(scene.engine.stats().running_items, 0U);
    }
  });
}

TEST(EngineSplit, JoinUndoesASplit) {
  for_all_shapes(6, [](const Sizes& shape) {
    Scene scene(shape);
    const std::size_t items = scene.batch.items;
    if (items > 1) {
      Batch first = split(scene.engine, scene.batch, middle_of(scene.batch.ranges));
      scene.engine.join(scene.batch, first);
      EXPECT_TRUE(first.ranges.empty());
    }
    EXPECT_EQ(sizes_of(scene.batch), shape);
    EXPECT_EQ(scene.batch.items, items);
    EXPECT_EQ(scene.engine.stats().running_batches, 1);
    EXPECT_EQ(scene.engine.stats().running_items, items);
    answer(scene.engine, scene.batch);
    for (const CallPtr& call : scene.calls) EXPECT_TRUE(call->answered() && call->released());
  });
}

TEST(EngineSplit, ARequestThatIsCutHasAHoldForEachPiece) {
  Scene scene({4});
  Batch first = split(scene.engine, scene.batch, middle_of(scene.batch.ranges));
  give_back(scene.engine, first, Outcome::kFailed);
  EXPECT_TRUE(scene.calls[0]->ended_as(Outcome::kFailed));
  EXPECT_FALSE(scene.calls[0]->released()) << "the other piece still runs";
  answer(scene.engine, scene.batch);
  EXPECT_TRUE(scene.calls[0]->released());
}

TEST(EngineSplit, ARequestThatHasEndedIsReleasedByItsLastPiece) {
  Scene scene({4});
  EXPECT_TRUE(abandon(scene.engine, *scene.calls[0]));
  Batch first = split(scene.engine, scene.batch, middle_of(scene.batch.ranges));
  answer(scene.engine, first);
  EXPECT_FALSE(scene.calls[0]->released());
  answer(scene.engine, scene.batch);
  EXPECT_TRUE(scene.calls[0]->released());
}

TEST(EngineSplit, APieceDropsRequestsThatEndedOrExpiredBeforeItRuns) {
  Scene scene({1, 2, 3, 1});
  Batch first = split(scene.engine, scene.batch, between_requests(scene.batch, 2));
  give_back(scene.engine, first, Outcome::kFailed);
  Batch& second = scene.batch;
  ASSERT_EQ(second.ranges.size(), 2U);
  EXPECT_TRUE(abandon(scene.engine, *scene.calls[2]));
  EXPECT_FALSE(scene.calls[2]->released());
  EXPECT_TRUE(drop_ended(scene.engine, second));
  EXPECT_TRUE(scene.calls[2]->released());
  EXPECT_EQ(second.items, 1U);
  EXPECT_EQ(scene.engine.stats().running_items, 1U);
  scene.calls[3]->deadline = Clock::now();
  EXPECT_FALSE(drop_ended(scene.engine, second));
  EXPECT_TRUE(scene.calls[3]->ended_as(Outcome::kExpired));
  EXPECT_TRUE(scene.calls[3]->released());
  EXPECT_EQ(scene.engine.stats().running_items, 0U);
  EXPECT_EQ(scene.engine.stats().running_batches, 0);
}

TEST(EngineSplit, CountsTheBatchOnceAndTheRequestsThatItsPiecesAnswered) {
  Scene scene({1, 1, 1});
  std::vector<Batch> pieces;
  pieces_of(scene.engine, scene.batch, false, pieces);
  give_back(scene.engine, pieces[0], Outcome::kFailed);
  answer(scene.engine, pieces[1]);
  answer(scene.engine, pieces[2]);
  const EngineStats stats = scene.engine.stats();
  EXPECT_EQ(stats.counters.batches, 1U);
  EXPECT_EQ(stats.counters.items, 3U);
  EXPECT_EQ(stats.counters.isolated, 2U);
  EXPECT_EQ(stats.counters.failed, 1U);
  EXPECT_EQ(stats.counters.completed, 2U);
  EXPECT_EQ(stats.service_time.count, 1U) << "only the first run counts as service time";
}

}  // namespace
}  // namespace service_streamer::support
