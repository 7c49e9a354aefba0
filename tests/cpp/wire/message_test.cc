#include "service_streamer/wire/message.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "service_streamer/wire/wire.h"
#include "support/messages.h"

namespace service_streamer::ipc::support {
namespace {

// --- hello, texts, ids ---

TEST_F(MessageTest, HelloHasVersionRoleAndPid) {
  Hello hello;
  ASSERT_TRUE(parse(deliver(make_hello(Role::kClient)), hello));
  EXPECT_EQ(hello.version, kProtocolVersion);
  EXPECT_EQ(hello.role, Role::kClient);
  EXPECT_EQ(hello.pid, getpid());
}

TEST_F(MessageTest, HelloRoleAndLengthAreChecked) {
  Hello hello;
  const OutMessage message = make_hello(Role::kClient);
  EXPECT_FALSE(parse(with(message, 4, std::uint32_t{3}), hello));
  InMessage received = deliver(message);
  received.body = received.body.slice(0, 11);
  EXPECT_FALSE(parse(received, hello));
  received = deliver(message);
  received.type = MessageType::kReady;
  EXPECT_FALSE(parse(received, hello));
}

TEST_F(MessageTest, TextsAndOpaqueBytesAreTheBody) {
  EXPECT_EQ(deliver(make_text(MessageType::kReady, "{}")).body.text(), "{}");
  const std::string large(100'000, 'x');
  const OutMessage setup = make_opaque(MessageType::kSetup, 3, Bytes::copy_of(large));
  EXPECT_TRUE(setup.head.empty()) << "a large one is not copied";
  EXPECT_EQ(deliver(setup).body.text(), large);
  EXPECT_EQ(deliver(make_opaque(MessageType::kQuery, 3, {})).body.size(), 0U);
}

TEST_F(MessageTest, IdsOfPartialLengthAreRejected) {
  const std::vector<std::uint64_t> ids{1, 2, UINT64_MAX};
  std::vector<std::uint64_t> received;
  ASSERT_TRUE(parse(deliver(make_ids(MessageType::kCancel, ids)), received));
  EXPECT_EQ(received, ids);
  InMessage cut = deliver(make_ids(MessageType::kCancel, ids));
  cut.body = cut.body.slice(0, 23);
  EXPECT_FALSE(parse(cut, received));
}

// --- batches ---

TEST_F(MessageTest, BatchJoinsRangesOfSeveralPayloads) {
  const Payload first = payload_with_blocks();
  const Payload second = payload_of({"x", "yy", "zzz", "wwww"});
  const std::vector<RangeHead> heads{{.items = 2, .deadline = TimePoint(Duration(5)), .whole = true}, {.items = 3}};
  const std::vector<PayloadRange> ranges{{.payload = &first, .begin = 1, .count = 2},
                                         {.payload = &second, .begin = 0, .count = 3}};
  InMessage message = deliver(make_batch(9, {}, heads, ranges));
  EXPECT_EQ(message.id, 9U);
  BatchMessage batch;
  ASSERT_TRUE(parse(message, batch));
  ASSERT_EQ(batch.ranges.size(), 2U);
  EXPECT_EQ(batch.ranges[0].items, 2U);
  EXPECT_TRUE(batch.ranges[0].whole);
  EXPECT_FALSE(batch.ranges[1].whole);
  EXPECT_EQ(batch.ranges[0].deadline, TimePoint(Duration(5)));
  EXPECT_EQ(batch.ranges[1].items, 3U);
  EXPECT_EQ(batch.ranges[1].deadline, TimePoint::max());
  ASSERT_EQ(batch.payload.items(), 5U);
  const std::vector<std::string_view> expected{"", "three", "x", "yy", "zzz"};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(item_of(batch.payload, i), expected[i]);
  ASSERT_EQ(batch.payload.blocks.size(), 1U);
  EXPECT_EQ(batch.payload.blocks[0].item, 1U);
  EXPECT_EQ(text_of(batch.payload.blocks[0].block), "ccc");
}

TEST_F(MessageTest, BatchHasWhatTheEngineKnowsAndTheContextsOfItsRanges) {
  const Payload payload = payload_of({"a", "b", "c"});
  const std::vector<RangeHead> heads{{.items = 1, .context = context_of("first"), .queue_time = Duration(7)},
                                     {.items = 1},
                                     {.items = 1, .context = context_of(std::string(kMaxTraceContext, 'x'))}};
  const PayloadRange all = all_of(payload);
  const OutMessage sent = make_batch(1, {.reason = CloseReason::kDrain, .age = Duration(8)}, heads, {&all, 1});
  expect_only_whole<BatchMessage>(sent);
  InMessage message = deliver(sent);
  BatchMessage batch;
  ASSERT_TRUE(parse(message, batch));
  EXPECT_EQ(batch.head.reason, CloseReason::kDrain);
  EXPECT_EQ(batch.head.age, Duration(8));
  EXPECT_EQ(*batch.ranges[0].context, "first");
  EXPECT_EQ(batch.ranges[0].queue_time, Duration(7));
  EXPECT_EQ(batch.ranges[1].context, nullptr);
  EXPECT_EQ(batch.ranges[2].context->size(), kMaxTraceContext);
  EXPECT_EQ(item_of(batch.payload, 2), "c");
}

TEST_F(MessageTest, AContextThatIsTooLongIsRejected) {
  const auto context = context_of(std::string(kMaxTraceContext + 1, 'x'));
  const Payload payload = payload_of({"a"});
  const PayloadRange all = all_of(payload);
  const RangeHead range{.items = 1, .context = context};
  EXPECT_FALSE(accepted<BatchMessage>(deliver(make_batch(1, {}, {&range, 1}, {&all, 1}))));
  const SubmitHead head{.id = 1, .context = context};
  const Payload* const one = &payload;
  EXPECT_FALSE(accepted<std::vector<SubmittedRequest>>(deliver(make_submit({&head, 1}, {&one, 1}))));
}

TEST_F(MessageTest, TraitsTravelWithARequest) {
  const Payload payload = payload_of({"a", "b"});
  const Payload* const payloads[] = {&payload, &payload, &payload};
  const auto traits_of = [](std::vector<std::uint64_t> keys, std::vector<double> weights) {
    return std::make_shared<ItemTraits>(ItemTraits{.keys = std::move(keys), .weights = std::move(weights)});
  };
  const std::vector<SubmitHead> heads{
      {.id = 1, .traits = traits_of({1, 2}, {})}, {.id = 2}, {.id = 3, .traits = traits_of({3, 3}, {0.5, 4})}};
  InMessage message = deliver(make_submit(heads, payloads));
  std::vector<SubmittedRequest> requests;
  ASSERT_TRUE(parse(message, requests));
  EXPECT_EQ(requests[0].head.traits->keys, heads[0].traits->keys);
  EXPECT_TRUE(requests[0].head.traits->weights.empty());
  EXPECT_EQ(requests[1].head.traits, nullptr);
  EXPECT_EQ(requests[2].head.traits->weights, heads[2].traits->weights);
  const SubmitHead of_tenant{
      .id = 4, .traits = std::make_shared<ItemTraits>(ItemTraits{.keys = {}, .weights = {}, .tenant = "name"})};
  message = deliver(make_submit({&of_tenant, 1}, {payloads, 1}));
  requests.clear();
  ASSERT_TRUE(parse(message, requests));
  EXPECT_EQ(requests[0].head.traits->tenant, "name");
  for (const double weight : {-1.0, 1e16, std::numeric_limits<double>::quiet_NaN()}) {
    const SubmitHead head{.id = 1, .traits = traits_of({}, {1, weight})};
    EXPECT_FALSE(accepted<std::vector<SubmittedRequest>>(deliver(make_submit({&head, 1}, {payloads, 1}))));
  }
}

TEST_F(MessageTest, BatchSendsLargeItemsWithoutACopy) {
  const Payload small = payload_of({"small"});
  const Payload large = payload_of({std::string(50'000, 'l')});
  const std::vector<RangeHead> heads{{.items = 1}, {.items = 1}, {.items = 1}};
  const std::vector<PayloadRange> ranges{all_of(small), all_of(large), all_of(small)};
  const OutMessage message = make_batch(1, {}, heads, ranges);
  EXPECT_LT(message.head.size(), 1000U);
  ASSERT_EQ(message.tail.size(), 2U);
  EXPECT_EQ(message.tail[0].data(), large.bytes.data());
  BatchMessage batch;
  InMessage received = deliver(message);
  ASSERT_TRUE(parse(received, batch));
  EXPECT_EQ(item_of(batch.payload, 2), "small");
}

TEST_F(MessageTest, BatchKeepsItsBlocksInOrder) {
  const Payload payload = payload_with_blocks();
  BatchMessage batch;
  InMessage message = deliver(batch_of(1, payload));
  ASSERT_TRUE(parse(message, batch));
  ASSERT_EQ(batch.payload.blocks.size(), 3U);
  EXPECT_EQ(batch.payload.blocks[0].item, 0U);
  EXPECT_EQ(batch.payload.blocks[1].item, 0U);
  EXPECT_EQ(text_of(batch.payload.blocks[0].block), "a");
  EXPECT_EQ(text_of(batch.payload.blocks[1].block), "bb");
  EXPECT_EQ(text_of(batch.payload.blocks[2].block), "ccc");
}

TEST_F(MessageTest, InvalidBatchesAreRejected) {
  const Payload payload = payload_with_blocks();
  const OutMessage message = batch_of(1, payload);
  expect_only_whole<BatchMessage>(message);
  const std::size_t table = sizeof(wire::Start);
  const std::size_t start = table + 3 * sizeof(wire::Block);
  const std::size_t range = start + sizeof(wire::Batch);
  const std::size_t head = range + sizeof(wire::RequestRange);
  const std::size_t ends = head + sizeof(wire::Payload);
  const std::size_t items = ends + 3 * 8;
  EXPECT_TRUE(accepted<BatchMessage>(with(message, ends, std::uint64_t{3})));
  for (const std::uint32_t count : {0U, 2U, 1U << 31, UINT32_MAX}) {
    EXPECT_FALSE(accepted<BatchMessage>(with(message, 0, count))) << "ranges";
    EXPECT_FALSE(accepted<BatchMessage>(with(message, 4, count))) << "blocks";
    EXPECT_FALSE(accepted<BatchMessage>(with(message, head, count))) << "items";
    EXPECT_FALSE(accepted<BatchMessage>(with(message, head + 4, count))) << "blocks of the items";
    EXPECT_FALSE(accepted<BatchMessage>(with(message, range + 8, count))) << "items of the range";
  }
  for (const std::uint64_t bytes : {std::uint64_t{7}, std::uint64_t{9}, UINT64_MAX}) {
    EXPECT_FALSE(accepted<BatchMessage>(with(message, 8, bytes))) << "opaque bytes";
  }
  constexpr auto kNoReason = static_cast<std::uint8_t>(static_cast<int>(CloseReason::kDrain) + 1);
  EXPECT_FALSE(accepted<BatchMessage>(with(message, start, kNoReason))) << "close reason";
  EXPECT_FALSE(accepted<BatchMessage>(with(message, start + 1, std::int64_t{-1}))) << "age";
  EXPECT_FALSE(accepted<BatchMessage>(with(message, range, std::int64_t{-1}))) << "deadline";
  EXPECT_FALSE(accepted<BatchMessage>(with(message, range + 13, std::uint16_t{1}))) << "size of a context";
  EXPECT_FALSE(accepted<BatchMessage>(with(message, range + 15, std::int64_t{-1}))) << "queue time";
  EXPECT_FALSE(accepted<BatchMessage>(with(message, ends, std::uint64_t{4}))) << "ends not in order";
  EXPECT_FALSE(accepted<BatchMessage>(with(message, ends + 16, std::uint64_t{7}))) << "bytes of no item";
  EXPECT_FALSE(accepted<BatchMessage>(with(message, ends + 16, UINT64_MAX))) << "items of no bytes";
  EXPECT_FALSE(accepted<BatchMessage>(with(message, items + 8, std::uint32_t{3}))) << "block of no item";
  EXPECT_FALSE(accepted<BatchMessage>(with(message, items, std::uint32_t{1}))) << "blocks not in order";
  EXPECT_FALSE(accepted<BatchMessage>(with(message, table, std::uint64_t{1} << 40))) << "memfd too small";
  EXPECT_FALSE(accepted<BatchMessage>(with(message, table + 8, wire::kHandleFlag))) << "one descriptor too many";
}

TEST_F(MessageTest, BlocksMustBeSealedMemfdsOnePerEntry) {
  const Payload payload = payload_with_blocks();
  const OutMessage batch = batch_of(1, payload);
  InMessage message = deliver(batch);
  message.descriptors.pop_back();
  EXPECT_FALSE(accepted<BatchMessage>(std::move(message))) << "too few";
  message = deliver(batch);
  message.descriptors.emplace_back(dup(message.descriptors[0].get()));
  EXPECT_FALSE(accepted<BatchMessage>(std::move(message))) << "too many";
  message = deliver(batch);
  message.descriptors[1] = std::move(socket_pair().first);
  EXPECT_FALSE(accepted<BatchMessage>(std::move(message))) << "a socket";
  message = deliver(batch);
  message.descriptors[1] = FileDescriptor(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(message.descriptors[1].get(), 1000), 0);
  EXPECT_FALSE(accepted<BatchMessage>(std::move(message))) << "not sealed";
}

TEST_F(MessageTest, ABlockMayArriveWithoutItsDescriptor) {
  const Payload payload = payload_with_blocks();
  InMessage message = deliver(batch_of(1, payload));
  message.descriptors[1].reset();
  BatchMessage batch;
  ASSERT_TRUE(parse(message, batch));
  EXPECT_EQ(batch.payload.blocks[1].block->fd(), -1);
  EXPECT_EQ(batch.payload.blocks[1].block->size(), 2U);
  EXPECT_EQ(text_of(batch.payload.blocks[2].block), "ccc");
}

TEST_F(MessageTest, RejectedMessagesLeaveNoDescriptorOpen) {
  const Payload payload = payload_with_blocks();
  const std::size_t before = open_descriptors();
  for (std::size_t cut = 0; cut < 200; ++cut) {
    InMessage message = deliver(batch_of(1, payload));
    message.body = message.body.slice(0, std::min(cut, message.body.size()));
    BatchMessage batch;
    parse(message, batch);
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace service_streamer::ipc::support
