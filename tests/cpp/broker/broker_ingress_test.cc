// Requests that come into an engine as bytes, and their results.

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "support/broker_ingress.h"
#include "support/ipc.h"

namespace service_streamer::support {
namespace {

TEST_F(BrokerIngressTest, ARequestIsAnswered) {
  owner.add_ready();
  EXPECT_EQ(submit(7, {1, 2, 3}), SubmitStatus::kAccepted);
  const EndedCall end = take_one();
  EXPECT_EQ(end.id, 7U);
  EndedCall read;
  ASSERT_TRUE(parse_result(body_of(end), 3, read));
  ASSERT_EQ(read.ranges.size(), 1U);
  EXPECT_EQ(numbers_of(read.ranges[0].result.bytes), (std::vector<int>{2, 3, 4}));
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
  for (std::size_t i = 0; i < 9; ++i) {
    submissions[i].head.id = i % 8 + 1;
    submissions[i].body = i == 3 ? Bytes::copy_of("nonsense") : request_of({1});
  }
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

TEST_F(BrokerIngressTest, TheAnswersOfABatchComeInItsOrderSoThatBulkRequestsAreLast) {
  std::vector<BrokerIngress::Submission> submissions(6);
  for (std::size_t i = 0; i < 6; ++i) {
    submissions[i].head.id = i + 1;
    submissions[i].head.priority = i < 3 ? -1 : 0;
    submissions[i].body = request_of({1});
  }
  ingress->submit(submissions);
  owner.add_ready();
  std::vector<std::uint64_t> ids;
  for (const EndedCall& end : take(6)) ids.push_back(end.id);
  EXPECT_EQ(ids, (std::vector<std::uint64_t>{4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(owner.engine.stats().counters.batches, 1U);
}

TEST_F(BrokerIngressTest, ATraceContextReachesTheWorker) {
  std::vector<std::string> seen;
  owner.add_ready([&seen](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    seen = contexts_of(batch);
    return add_one(batch, reply);
  });
  const Chunk chunk{
      .items = 1, .payload = std::make_shared<const ipc::Payload>(payload_of({1})), .context = context_of("context")};
  EXPECT_EQ(submit_to(*ingress, {.id = 7}, body_of(chunk)), SubmitStatus::kAccepted);
  EXPECT_EQ(take_one().outcome, Outcome::kAnswered);
  EXPECT_EQ(seen, std::vector<std::string>{"context"});
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
    EXPECT_TRUE(end.ranges.empty());
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

}  // namespace
}  // namespace service_streamer::support
