// Requests that leave a process as bytes, and their results.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "support/broker_egress.h"

namespace service_streamer::support {
namespace {

TEST_F(BrokerEgressTest, ARequestIsSentAndItsAnswerEndsIt) {
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
  EXPECT_EQ(poll(), TakeStatus::kNothing);
}

TEST_F(BrokerEgressTest, LargeRequestsAreCutAndTheirAnswersJoinedInOrder) {
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

TEST_F(BrokerEgressTest, EachChunkHasTheTraceContext) {
  const RemoteRequest request = sent(engine, {1, 2, 3, 4, 5}, {.context = context_of("context")});
  Taken taken = take();
  ASSERT_EQ(taken.chunks.size(), 2U);
  std::vector<Chunk> again;
  out().unanswered(Ids{taken.chunks[0].id}, again);
  ASSERT_EQ(again.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(*taken.chunks[i].context, "context");
    EXPECT_EQ(*again[i].context, "context");
    EXPECT_TRUE(answer(out(), taken.chunks[i]));
  }
  EXPECT_TRUE(request.answered());
}

TEST_F(BrokerEgressTest, TakeReturnsAboutLimitItems) {
  const RemoteRequest first = sent(engine, std::vector<int>(10, 1));
  const RemoteRequest second = sent(engine, {1});
  std::vector<Chunk> all;
  for (const std::size_t expected : {1U, 1U, 1U, 1U}) {
    Taken taken = take(1);
    EXPECT_EQ(taken.chunks.size(), expected);
    all.insert(all.end(), taken.chunks.begin(), taken.chunks.end());
    EXPECT_EQ(out().in_flight(), all.size() > 3 ? 2U : 1U);
  }
  EXPECT_EQ(poll(1), TakeStatus::kNothing);
  for (const Chunk& chunk : all) EXPECT_TRUE(answer(out(), chunk));
  EXPECT_TRUE(first.answered());
  EXPECT_TRUE(second.answered());
}

TEST_F(BrokerEgressTest, TakeWithLimitZeroReturnsOnlyCancelledRequests) {
  const RemoteRequest request = sent(engine, {1});
  const Chunk chunk = take_one();
  const RemoteRequest queued = sent(engine, {2});
  EXPECT_EQ(poll(0), TakeStatus::kNothing);
  EXPECT_TRUE(request.cancel(engine, true));
  EXPECT_EQ(take(0).cancelled, Ids{chunk.id});
  EXPECT_TRUE(answer(out(), take_one()));
  EXPECT_TRUE(queued.answered());
}

TEST_F(BrokerEgressTest, DuplicateAndUnknownAnswersAreIgnored) {
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

TEST_F(BrokerEgressTest, TheFirstChunkThatFailsEndsTheRequestAndTheOthersAreCancelled) {
  const RemoteRequest request = sent(engine, std::vector<int>(10, 1));
  const Taken taken = take();
  EXPECT_TRUE(answer(out(), taken.chunks[0]));
  EXPECT_TRUE(give(out(), taken.chunks[1], failure()));
  EXPECT_TRUE(request.ends_as(Outcome::kFailed));
  ASSERT_EQ(request.call().ranges.size(), 1U);
  EXPECT_EQ(request.call().ranges[0].result.bytes.text(), "error");
  EXPECT_EQ(take().cancelled, Ids{taken.chunks[0].id});
  EXPECT_FALSE(answer(out(), taken.chunks[2]));
  EXPECT_EQ(poll(), TakeStatus::kNothing) << "reply once";
}

TEST_F(BrokerEgressTest, ARequestWhoseLastChunkFailsIsNotCancelled) {
  const RemoteRequest request = sent(engine, std::vector<int>(8, 1));
  const Taken taken = take();
  EXPECT_TRUE(answer(out(), taken.chunks[0]));
  EXPECT_TRUE(give(out(), taken.chunks[1], failure()));
  EXPECT_TRUE(request.ends_as(Outcome::kFailed));
  EXPECT_EQ(poll(), TakeStatus::kNothing);
}

TEST_F(BrokerEgressTest, ALossHasItsNote) {
  const RemoteRequest request = sent(engine, {1});
  EXPECT_TRUE(give(out(), take_one(), loss("it died")));
  EXPECT_TRUE(request.ends_as(Outcome::kLost));
  EXPECT_EQ(request.call().note, "it died");
}

TEST_F(BrokerEgressTest, ACorruptAnswerLosesItsRequestAndTheNoteNamesIt) {
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

TEST_F(BrokerEgressTest, ARequestThatIsTooLargeForAMessageIsLostAtOnce) {
  constexpr std::uint64_t kTooMuch = 5'000'000'000;
  RemoteRequest large({1, 2, 3, 4, 5, 6, 7, 8});
  large.call().payload.ends = {1, 2, 3, 4, 5, 6, 7, kTooMuch};  // the bytes are not read
  ASSERT_TRUE(large.submit(engine));
  const RemoteRequest other = sent(engine, {1});
  EXPECT_TRUE(answer(out(), take_one()));
  EXPECT_TRUE(other.answered());
  EXPECT_TRUE(large.ends_as(Outcome::kLost));
  EXPECT_NE(large.call().note.find("4294967295 bytes"), std::string::npos) << large.call().note;
}

TEST_F(BrokerEgressTest, RequestsCanBeLostAndFailedByTheCaller) {
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
  ASSERT_EQ(failed.call().ranges.size(), 1U);
  EXPECT_EQ(failed.call().ranges[0].result.bytes.text(), "error");
  EXPECT_FALSE(answer(out(), taken.chunks[0]));
  EXPECT_EQ(poll(), TakeStatus::kNothing) << "the caller knows";
}

TEST_F(BrokerEgressTest, UnansweredChunksCanBeSentAgain) {
  const RemoteRequest request = sent(engine, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const Taken taken = take(5);
  ASSERT_EQ(taken.chunks.size(), 2U);
  EXPECT_TRUE(answer(out(), taken.chunks[0]));
  const Ids ids{taken.chunks[0].id, 5};
  std::vector<Chunk> again;
  out().unanswered(ids, again);
  ASSERT_EQ(again.size(), 1U) << "only the chunk that was taken and not answered";
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

TEST_F(BrokerEgressTest, ARequestCancelledBeforeItIsTakenIsNeverSent) {
  const RemoteRequest queued = sent(engine, {1});
  EXPECT_TRUE(queued.cancel(engine));
  const RemoteRequest request = sent(engine, std::vector<int>(10, 1));
  EXPECT_EQ(take(1).chunks.size(), 1U);
  EXPECT_TRUE(request.cancel(engine, true));
  const Taken taken = take();
  EXPECT_EQ(taken.chunks.size(), 0U) << "the other chunks must not be sent";
  EXPECT_EQ(taken.cancelled.size(), 1U);
  EXPECT_EQ(engine.stats().running_items, 0U);
}

TEST_F(BrokerEgressTest, ACancelWakesTake) {
  const RemoteRequest request = sent(engine, {1});
  const Chunk chunk = take_one();
  Taken taken;
  std::atomic<TakeStatus> got{TakeStatus::kNothing};
  {
    Thread sender([&] { got = egress->take(kPlenty, soon(), taken); });
    EXPECT_TRUE(eventually([&] { return sender.asleep(); }));
    EXPECT_TRUE(request.cancel(engine, true));
  }
  EXPECT_EQ(got, TakeStatus::kTaken);
  EXPECT_EQ(taken.cancelled, Ids{chunk.id});
  EXPECT_FALSE(answer(out(), chunk));
  EXPECT_TRUE(request.ends_as(Outcome::kCancelled));
}

// They soon submit again, and all their requests go to the broker in one round trip.
TEST_F(BrokerEgressTest, TakeWaitsForTheCallersThatAreBeingWoken) {
  WakeQueue& queue = WakeQueue::instance();
  Taken taken;
  Thread sender([&] { egress->take(kPlenty, soon(), taken); });
  ASSERT_TRUE(idle_workers_are(engine, 1));
  Completion first, second;
  Sleeping callers[2];
  ASSERT_TRUE(first.enter(callers[0].waiter()) && second.enter(callers[1].waiter()));
  queue.publish(first);
  queue.publish(second);
  queue.wake();
  const RemoteRequest request = sent(engine, {1});
  queue.pass(callers[0].waiter());
  EXPECT_TRUE(eventually([&] { return sender.asleep(); }));
  EXPECT_FALSE(sender.finished());
  queue.pass(callers[1].waiter());
  EXPECT_TRUE(eventually([&] { return sender.finished(); }));
  ASSERT_EQ(taken.chunks.size(), 1U);
  EXPECT_TRUE(answer(out(), taken.chunks.front()));
  EXPECT_TRUE(request.answered());
}

// For a thread that takes, and then has to wait for the GIL.
TEST_F(BrokerEgressTest, TakeMoreAddsWhatWasQueuedMeanwhile) {
  const RemoteRequest first = sent(engine, {1});
  Taken taken = take(3);
  const RemoteRequest second = sent(engine, {2});
  const RemoteRequest third = sent(engine, {3});
  const RemoteRequest fourth = sent(engine, {4});
  ASSERT_TRUE(first.cancel(engine, true));
  egress->take_more(3, taken);
  ASSERT_EQ(taken.chunks.size(), 3U);
  EXPECT_EQ(taken.cancelled, Ids{taken.chunks[0].id});
  egress->take_more(3, taken);
  EXPECT_EQ(taken.chunks.size(), 3U) << "no more than the limit";
  for (const Chunk& chunk : {taken.chunks[1], taken.chunks[2], take_one()}) EXPECT_TRUE(answer(out(), chunk));
  EXPECT_TRUE(second.answered() && third.answered() && fourth.answered());
  egress->stop();
  egress->take_more(4, taken);
  EXPECT_EQ(taken.chunks.size(), 3U);
}

TEST_F(BrokerEgressTest, TakeWatchesDeadlines) {
  Chunk chunk;
  const RemoteRequest request = taken_before_it_expires(chunk);
  EXPECT_EQ(chunk.deadline, request.request().deadline);
  Taken taken;
  EXPECT_EQ(egress->take(0, soon(), taken), TakeStatus::kTaken);
  EXPECT_EQ(taken.cancelled, Ids{chunk.id});
  EXPECT_FALSE(answer(out(), chunk)) << "too late";
  EXPECT_TRUE(request.ends_as(Outcome::kExpired));
}

TEST_F(BrokerEgressTest, AnExpiredRequestIsNeverSent) {
  const RemoteRequest queued = sent(engine, {1}, {.deadline = Clock::now() + milliseconds(1)});
  pass_time_until(queued.request().deadline);
  EXPECT_EQ(poll(), TakeStatus::kNothing);
  EXPECT_TRUE(queued.ends_as(Outcome::kExpired));
}

TEST_F(BrokerEgressTest, ATimerThreadWatchesDeadlinesWhileNoThreadIsInTake) {
  std::atomic<bool> waits{false};
  const auto timer = std::make_unique<Thread>([&] {
    Sleeping sleeping;
    for (waits = true; engine.deadline_timer().wait(sleeping.waiter()) != DeadlineTimer::Ready::kClosed;) {
      EndedRequests ended;
      engine.deadline_timer().expire(ended);
      ipc::publish(ended);
    }
  });
  EXPECT_TRUE(eventually([&] { return waits && timer->asleep(); }));
  Chunk chunk;
  const RemoteRequest request = taken_before_it_expires(chunk);
  EXPECT_TRUE(request.ends_as(Outcome::kExpired));
  EXPECT_EQ(take(0).cancelled, Ids{chunk.id});
  const RemoteRequest queued = sent(engine, {1}, {.deadline = Clock::now() + milliseconds(10)});
  EXPECT_TRUE(queued.ends_as(Outcome::kExpired));
  egress->stop();
  const RemoteRequest later = sent(engine, {1}, {.deadline = Clock::now() + milliseconds(10)});
  EXPECT_TRUE(later.ends_as(Outcome::kExpired)) << "also after the last take()";
  close_remote(engine, true);
  EXPECT_TRUE(eventually([&] { return timer->finished(); }));
}

}  // namespace
}  // namespace service_streamer::support
