// What Engine::stats() counts.

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "support/threads.h"

namespace service_streamer::support {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr EngineOptions kByFour{.batch_size = 4, .policy = PolicyKind::kGreedy, .workers = 2, .max_queue = 8};

TEST(EngineStats, IsAllZeroAtFirst) {
  const Engine engine(kByFour);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.workers, 2);
  EXPECT_EQ(stats.idle_workers, 0);
  EXPECT_EQ(stats.queued_items, 0U);
  EXPECT_EQ(stats.queued_requests, 0);
  EXPECT_EQ(stats.waiting_requests, 0);
  EXPECT_EQ(stats.running_items, 0U);
  EXPECT_EQ(stats.running_batches, 0);
  EXPECT_EQ(stats.counters.submitted, 0U);
  EXPECT_TRUE(stats.counters.batch_sizes.empty());
  EXPECT_EQ(stats.queue_time.count, 0U);
}

TEST(EngineStats, ShowsWhereRequestsAre) {
  Engine engine(kByFour);
  const CallPtr large = submitted(engine, 6);
  const CallPtr small = submitted(engine, 2);
  const CallPtr waiting = make_call(6);
  EXPECT_EQ(submit(engine, waiting), Engine::Admission::kWaiting);
  EngineStats stats = engine.stats();
  EXPECT_EQ(stats.queued_items, 8U);
  EXPECT_EQ(stats.queued_requests, 2);
  EXPECT_EQ(stats.waiting_requests, 1);
  Batch first = take(engine);
  stats = engine.stats();
  EXPECT_EQ(stats.queued_items, 4U);
  EXPECT_EQ(stats.queued_requests, 2) << "a request of which some items are left is still queued";
  EXPECT_EQ(stats.running_items, 4U);
  EXPECT_EQ(stats.running_batches, 1);
  Batch second = take(engine);
  stats = engine.stats();
  EXPECT_EQ(stats.queued_items, 6U);
  EXPECT_EQ(stats.queued_requests, 1);
  EXPECT_EQ(stats.waiting_requests, 0);
  EXPECT_EQ(stats.running_items, 8U);
  EXPECT_EQ(stats.running_batches, 2);
  answer(engine, first);
  answer(engine, second);
  serve_all(engine);
  stats = engine.stats();
  EXPECT_EQ(stats.queued_items, 0U);
  EXPECT_EQ(stats.queued_requests, 0);
  EXPECT_EQ(stats.running_items, 0U);
  EXPECT_EQ(stats.running_batches, 0);
  EXPECT_EQ(stats.counters.submitted, 3U);
  EXPECT_EQ(stats.counters.completed, 3U);
}

TEST(EngineStats, CountsBatchesTheirItemsSizesAndReasons) {
  Engine engine(kByFour);
  const std::vector<std::uint32_t> sizes{1, 4, 2, 4, 1};
  for (const std::uint32_t size : sizes) {
    const CallPtr call = submitted(engine, size);
    serve_all(engine);
  }
  const Counters counters = engine.stats().counters;
  EXPECT_EQ(counters.batches, 5U);
  EXPECT_EQ(counters.items, 12U);
  EXPECT_EQ(counters.batch_sizes, (std::map<std::size_t, std::uint64_t>{{1, 2}, {2, 1}, {4, 2}}));
  EXPECT_EQ(counters.close_reasons[static_cast<std::size_t>(CloseReason::kFull)], 2U);
  EXPECT_EQ(counters.close_reasons[static_cast<std::size_t>(CloseReason::kIdle)], 3U);
  EXPECT_EQ(std::accumulate(counters.close_reasons.begin(), counters.close_reasons.end(), std::uint64_t{0}), 5U);
}

TEST(EngineStats, PeakCountsRequestsThatWaitOrRunToo) {
  Engine engine(kByFour);
  const CallPtr running = submitted(engine, 4);
  Batch batch = take(engine);
  const CallPtr queued = submitted(engine, 8);
  const CallPtr waiting = make_call(1);
  EXPECT_EQ(submit(engine, waiting), Engine::Admission::kWaiting);
  EXPECT_EQ(engine.stats().counters.peak_requests, 3U);
  answer(engine, batch);
  serve_all(engine);
  const CallPtr later = submitted(engine, 1);
  serve_all(engine);
  EXPECT_EQ(engine.stats().counters.peak_requests, 3U);
}

TEST(EngineStats, QueueTimeIsFromTheArrivalUntilTheFirstItemIsCut) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 8);
  pass_time_until(call->arrived + milliseconds(2));
  Batch first = take(engine);
  EXPECT_GE(first.age, milliseconds(2));
  EXPECT_EQ(engine.stats().queue_time.count, 1U);
  EXPECT_EQ(engine.stats().queue_time.max, first.age);
  pass_time_until(first.dispatched + milliseconds(5));
  Batch second = take(engine);
  EXPECT_GE(second.age, milliseconds(7));
  EXPECT_EQ(engine.stats().queue_time.count, 1U) << "a request counts once";
  EXPECT_EQ(engine.stats().queue_time.max, first.age);
  answer(engine, first);
  answer(engine, second);
}

TEST(EngineStats, ServiceTimeIsFromTheCutUntilTheBatchIsBack) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  Batch batch = take(engine);
  const TimePoint cut_at = batch.dispatched;
  pass_time_until(cut_at + milliseconds(3));
  answer(engine, batch);
  const DurationSummary service = engine.stats().service_time;
  EXPECT_EQ(service.count, 1U);
  EXPECT_EQ(service.max, call->ended - cut_at);
  EXPECT_GE(service.max, milliseconds(3));
}

TEST(EngineStats, DeliveryTimeIsFromTheEndUntilTheCallerHasTheResult) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  serve_all(engine);
  EXPECT_EQ(engine.stats().delivery_time.count, 0U);
  engine.delivered(*call, call->ended + milliseconds(4));
  EXPECT_EQ(engine.stats().delivery_time.count, 1U);
  EXPECT_EQ(engine.stats().delivery_time.max, milliseconds(4));
}

TEST(EngineStats, LatencyIsFromTheArrivalUntilTheCallerHasTheResultOrTheReplyIsSent) {
  Engine engine(kByFour);
  const CallPtr here = submitted(engine, 1);
  const CallPtr elsewhere = submitted(engine, 1);
  serve_all(engine);
  engine.delivered(*here, here->arrived + milliseconds(4));
  EXPECT_EQ(engine.stats().latency.max, milliseconds(4));
  engine.replied(*elsewhere, elsewhere->arrived + milliseconds(9));
  EXPECT_EQ(engine.stats().latency.min, milliseconds(4));
  EXPECT_EQ(engine.stats().latency.max, milliseconds(9));
  EXPECT_EQ(engine.stats().delivery_time.count, 1U);
  elsewhere->outcome = Outcome::kExpired;
  engine.replied(*elsewhere, elsewhere->arrived + milliseconds(99));
  EXPECT_EQ(engine.stats().latency.count, 2U) << "only of requests that were answered";
}

TEST(EngineStats, AFailedOrLostBatchCountsAsABatch) {
  Engine engine(kByFour);
  const CallPtr failed = submitted(engine, 1);
  Batch batch = take(engine);
  give_back(engine, batch, Outcome::kFailed);
  const CallPtr lost = submitted(engine, 1);
  batch = take(engine);
  give_back(engine, batch, Outcome::kLost);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.counters.failed, 2U);
  EXPECT_EQ(stats.counters.batches, 2U);
  EXPECT_EQ(stats.service_time.count, 2U);
  EXPECT_EQ(stats.counters.isolated, 0U);
}

TEST(EngineStats, TheRecentOnesOfAYoungEngineAreAllOfThem) {
  Engine engine({.batch_size = 4, .policy = PolicyKind::kGreedy, .max_queue = 4, .overflow = Overflow::kReject});
  const CallPtr answered = submitted(engine, 3);
  serve_all(engine);
  engine.delivered(*answered, answered->ended + milliseconds(4));
  const CallPtr queued = submitted(engine, 4);
  EXPECT_EQ(submit(engine, make_call(4)), Engine::Admission::kFull);
  const EngineStats stats = engine.stats();
  EXPECT_GE(stats.uptime, Duration::zero());
  for (const RecentStats* recent : {&stats.last_10s, &stats.last_minute}) {
    EXPECT_EQ(recent->length, stats.uptime);
    EXPECT_EQ(recent->counts.submitted, 2U);
    EXPECT_EQ(recent->counts.completed, 1U);
    EXPECT_EQ(recent->counts.rejected, 1U);
    EXPECT_EQ(recent->counts.batches, 1U);
    EXPECT_EQ(recent->counts.items, 3U);
    EXPECT_EQ(recent->counts.close_reasons, stats.counters.close_reasons);
    EXPECT_EQ(recent->times.queue_time.buckets, stats.queue_time.buckets);
    EXPECT_EQ(recent->times.service_time.total, stats.service_time.total);
    EXPECT_EQ(recent->times.delivery_time.max, milliseconds(4));
  }
  serve_all(engine);
}

TEST(EngineStats, ADeliveryLongAfterTheLastEventIsInItsWindow) {
  Engine engine(kByFour);
  const CallPtr call = submitted(engine, 1);
  serve_all(engine);
  const TimePoint delivery = Clock::now() + seconds(30);
  engine.delivered(*call, delivery);
  const EngineStats soon = engine.stats(delivery + seconds(9));
  EXPECT_EQ(soon.last_10s.counts.completed, 0U);
  EXPECT_EQ(soon.last_10s.times.delivery_time.count, 1U);
  EXPECT_EQ(engine.stats(delivery + seconds(11)).last_10s.times.delivery_time.count, 0U);
}

TEST(EngineStats, EachEngineHasAnIdOfItsOwn) {
  const Engine first(kByFour), second(kByFour);
  EXPECT_EQ(first.stats().engine_id, first.stats().engine_id);
  EXPECT_NE(first.stats().engine_id, second.stats().engine_id);
  EXPECT_EQ(first.stats().engine_id.size(), 16U);
}

TEST(EngineStats, IdleWorkersAreThoseThatSleep) {
  Engine engine(kByFour);
  std::atomic<bool> go{false};
  Worker worker(engine, [&](Engine& of, Batch& batch) {
    EXPECT_TRUE(eventually([&] { return go.load(); }));
    answer(of, batch);
  });
  ASSERT_TRUE(idle_workers_are(engine, 1));
  const CallPtr call = submitted(engine, 1);
  EXPECT_EQ(engine.stats().idle_workers, 0) << "it is not idle from the moment that it is woken";
  EXPECT_TRUE(eventually([&] { return engine.stats().running_batches == 1; }));
  go = true;
  EXPECT_TRUE(idle_workers_are(engine, 1));
}

}  // namespace
}  // namespace service_streamer::support
