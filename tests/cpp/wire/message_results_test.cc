// message.h: replies of workers, requests of clients, and their ends.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "service_streamer/wire/message.h"
#include "service_streamer/wire/wire.h"
#include "support/messages.h"

namespace service_streamer::ipc::support {
namespace {

// --- replies ---

TEST_F(MessageTest, ReplyHasAResultForEachRange) {
  ReplyMessage reply{.isolated = true,
                     .memory = {.failed = 9, .passed = 4},
                     .decode = Duration(1),
                     .predict = Duration(2),
                     .encode = Duration(3),
                     .results = {}};
  reply.results.push_back(result_of("outputs", {"p", "qq"}));
  reply.results.push_back(result_of("", {"rows"}, ResultKind::kRows));
  reply.results.push_back(result_of("error", {}, ResultKind::kError));
  InMessage message = deliver(make_reply(77, reply));
  EXPECT_EQ(message.id, 77U);
  ReplyMessage received;
  ASSERT_TRUE(parse(message, received));
  EXPECT_TRUE(received.isolated);
  EXPECT_EQ(received.memory.failed, 9U);
  EXPECT_EQ(received.memory.passed, 4U);
  EXPECT_EQ(received.decode, Duration(1));
  EXPECT_EQ(received.predict, Duration(2));
  EXPECT_EQ(received.encode, Duration(3));
  ASSERT_EQ(received.results.size(), 3U);
  EXPECT_EQ(received.results[0].kind, ResultKind::kOutputs);
  EXPECT_EQ(received.results[0].bytes.text(), "outputs");
  ASSERT_EQ(received.results[0].blocks.size(), 2U);
  EXPECT_EQ(text_of(received.results[0].blocks[1]), "qq");
  EXPECT_EQ(received.results[1].kind, ResultKind::kRows);
  EXPECT_EQ(text_of(received.results[1].blocks.at(0)), "rows");
  EXPECT_EQ(received.results[2].kind, ResultKind::kError);
  EXPECT_EQ(received.results[2].bytes.text(), "error");
}

TEST_F(MessageTest, InvalidRepliesAreRejected) {
  ReplyMessage reply;
  reply.results.push_back(result_of("outputs", {"p", "qq"}));
  reply.results.push_back(result_of("more", {"r"}));
  const OutMessage message = make_reply(1, reply);
  expect_only_whole<ReplyMessage>(message);
  const std::size_t head = sizeof(wire::Start) + 3 * sizeof(wire::Block);
  EXPECT_FALSE(accepted<ReplyMessage>(with(message, head, std::uint8_t{2}))) << "isolated";
  EXPECT_FALSE(accepted<ReplyMessage>(with(message, head + 1, std::uint8_t{2}))) << "out_of_memory";
  for (const std::size_t time : {10, 18, 26}) {
    EXPECT_FALSE(accepted<ReplyMessage>(with(message, head + time, std::int64_t{-1})));
    EXPECT_FALSE(accepted<ReplyMessage>(with(message, head + time, INT64_MAX)));
  }
  const std::size_t result = head + sizeof(wire::Reply);
  EXPECT_FALSE(accepted<ReplyMessage>(with(message, result, std::uint8_t{4}))) << "kind";
  for (const std::uint32_t count : {0U, 3U, UINT32_MAX}) {
    EXPECT_FALSE(accepted<ReplyMessage>(with(message, 0, count))) << "results";
    EXPECT_FALSE(accepted<ReplyMessage>(with(message, result + 1, count))) << "blocks";
  }
  EXPECT_FALSE(accepted<ReplyMessage>(with(message, result + 5, UINT64_MAX))) << "bytes";
}

// --- requests and their ends ---

TEST_F(MessageTest, SubmitHasRequestsWithTheirItems) {
  const Payload first = payload_with_blocks();
  const Payload second = payload_of({std::string(10'000, 'x')});
  const std::vector<SubmitHead> heads{{.id = 5, .priority = -3, .deadline = TimePoint(Duration(8))},
                                      {.id = UINT64_MAX, .priority = 4, .context = context_of("context")}};
  const std::vector<const Payload*> payloads{&first, &second};
  InMessage message = deliver(make_submit(heads, payloads));
  std::vector<SubmittedRequest> requests;
  ASSERT_TRUE(parse(message, requests));
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].head.id, 5U);
  EXPECT_EQ(requests[0].head.priority, -3);
  EXPECT_EQ(requests[0].head.deadline, TimePoint(Duration(8)));
  EXPECT_EQ(requests[0].head.context, nullptr);
  EXPECT_EQ(item_of(requests[0].payload, 2), "three");
  EXPECT_EQ(text_of(requests[0].payload.blocks.at(2).block), "ccc");
  EXPECT_EQ(requests[1].head.id, UINT64_MAX);
  EXPECT_EQ(requests[1].head.deadline, TimePoint::max());
  EXPECT_EQ(*requests[1].head.context, "context");
  EXPECT_EQ(item_of(requests[1].payload, 0).size(), 10'000U);
  EXPECT_TRUE(requests[1].payload.blocks.empty());
}

TEST_F(MessageTest, InvalidSubmitsAreRejected) {
  const Payload first = payload_with_blocks();
  const Payload second = payload_of({"x"});
  const std::vector<SubmitHead> heads{{.id = 5}, {.id = 6, .context = context_of("c")}};
  const std::vector<const Payload*> payloads{&first, &second};
  const OutMessage message = make_submit(heads, payloads);
  expect_only_whole<std::vector<SubmittedRequest>>(message);
  const std::size_t request = sizeof(wire::Start) + 3 * sizeof(wire::Block);
  const std::size_t payload = request + sizeof(wire::SubmitRequest);
  const auto accepts = [&](std::size_t offset, auto value) {
    return accepted<std::vector<SubmittedRequest>>(with(message, offset, value));
  };
  EXPECT_FALSE(accepts(request + 8, std::int64_t{-1})) << "deadline";
  for (const int size : {1, 20, UINT16_MAX}) {
    EXPECT_FALSE(accepts(request + 20, static_cast<std::uint16_t>(size))) << "context";
  }
  EXPECT_FALSE(accepts(8, std::uint64_t{8})) << "bytes";
  EXPECT_FALSE(accepts(8, UINT64_MAX)) << "bytes";
  for (const std::uint32_t count : {0U, 2U, UINT32_MAX}) {
    EXPECT_FALSE(accepts(payload, count)) << "items";
    EXPECT_FALSE(accepts(payload + 4, count)) << "blocks";
  }
  for (const std::uint32_t count : {0U, 1U, 3U, UINT32_MAX}) EXPECT_FALSE(accepts(0, count)) << "requests";
}

TEST_F(MessageTest, ResultsHaveTheEndOfEachRequest) {
  std::vector<EndedCall> calls(3);
  calls[0] = {.id = 1, .outcome = Outcome::kAnswered, .note = "", .ranges = {}};
  calls[0].ranges.push_back({.begin = 0, .count = 2, .result = result_of("first", {"a"})});
  calls[0].ranges.push_back({.begin = 2, .count = 1, .result = result_of(std::string(9000, 's'), {})});
  calls[1] = {.id = 2, .outcome = Outcome::kLost, .note = "killed by signal 9", .ranges = {}};
  calls[2] = {.id = 3, .outcome = Outcome::kFailed, .note = "", .ranges = {}};
  calls[2].ranges.push_back({.begin = 0, .count = 1, .result = result_of("error", {}, ResultKind::kError)});
  InMessage message = deliver(make_results(calls));
  std::vector<EndedCall> received;
  ASSERT_TRUE(parse(message, received));
  ASSERT_EQ(received.size(), 3U);
  EXPECT_EQ(received[0].outcome, Outcome::kAnswered);
  ASSERT_EQ(received[0].ranges.size(), 2U);
  EXPECT_EQ(received[0].ranges[0].result.bytes.text(), "first");
  EXPECT_EQ(text_of(received[0].ranges[0].result.blocks.at(0)), "a");
  EXPECT_EQ(received[0].ranges[1].begin, 2U);
  EXPECT_EQ(received[0].ranges[1].result.bytes.size(), 9000U);
  EXPECT_EQ(received[1].note, "killed by signal 9");
  EXPECT_EQ(received[2].ranges.at(0).result.kind, ResultKind::kError);
}

TEST_F(MessageTest, InvalidResultsAreRejected) {
  std::vector<EndedCall> calls(2);
  calls[0] = {.id = 1, .outcome = Outcome::kAnswered, .note = "", .ranges = {}};
  calls[0].ranges.push_back({.begin = 0, .count = 2, .result = result_of("first", {"a"})});
  calls[1] = {.id = 2, .outcome = Outcome::kLost, .note = "gone", .ranges = {}};
  const OutMessage message = make_results(calls);
  expect_only_whole<std::vector<EndedCall>>(message);
  const auto accepts = [&](std::size_t offset, auto value) {
    return accepted<std::vector<EndedCall>>(with(message, offset, value));
  };
  const std::size_t call = sizeof(wire::Start) + sizeof(wire::Block);
  const std::size_t range = call + sizeof(wire::ResultsCall);
  EXPECT_FALSE(accepts(call + 8, std::uint8_t{8})) << "outcome";
  EXPECT_FALSE(accepts(range + 4, std::uint32_t{0})) << "items of a range";
  EXPECT_FALSE(accepts(range, UINT32_MAX)) << "begin of a range";
  EXPECT_FALSE(accepts(range + 8, std::uint8_t{9})) << "kind";
  for (const std::uint32_t size : {1U, 5U, UINT32_MAX}) EXPECT_FALSE(accepts(call + 9, size)) << "note";
  for (const std::uint32_t count : {0U, 3U, UINT32_MAX}) {
    EXPECT_FALSE(accepts(0, count)) << "calls";
    EXPECT_FALSE(accepts(call + 13, count)) << "ranges";
    EXPECT_FALSE(accepts(range + 9, count)) << "blocks";
  }
}

}  // namespace
}  // namespace service_streamer::ipc::support
