#include "service_streamer/wire/broker_entries.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace service_streamer::ipc {
namespace {

using namespace std::string_view_literals;

// A request of the client "0123456789abcdef", in the layout of python/service_streamer/_redis/README.md.
constexpr std::string_view kMessage =
    "SS\1\1"
    "0123456789abcdef"
    "\7\0\0\0\0\0\0\x80"
    "\x40\0\0\0"
    "\3\0\0\0"
    "\xd0\7\0\0\0\0\0\0"
    "\xff\xff\xff\xff\xff\xff\xff\xff"
    "\xfe\xff\xff\xff"
    "body"sv;

RequestHead head_of(std::uint64_t request, std::uint32_t items = 1) {
  RequestHead head;
  head.request = request;
  head.items = items;
  return head;
}

TEST(RequestHead, HasTheDocumentedLayout) {
  RequestHead head;
  ASSERT_TRUE(parse_request_head(kMessage, head));
  EXPECT_EQ(std::string_view(head.client.data(), head.client.size()), "0123456789abcdef");
  EXPECT_EQ(std::uint64_t{head.request}, 0x8000'0000'0000'0007U);
  EXPECT_EQ(std::uint32_t{head.begin}, 64U);
  EXPECT_EQ(std::uint32_t{head.items}, 3U);
  EXPECT_EQ(std::int64_t{head.deadline}, 2000);
  EXPECT_EQ(std::int64_t{head.sent}, -1);
  EXPECT_EQ(std::int32_t{head.priority}, -2);
  EXPECT_EQ(kMessage.substr(sizeof(RequestHead)), "body");
  std::string written;
  wire::append(written, head);
  EXPECT_EQ(written, kMessage.substr(0, sizeof(RequestHead)));
}

TEST(RequestHead, OtherMessagesAreRejected) {
  RequestHead head;
  for (std::size_t size = 0; size < sizeof(RequestHead); ++size)
    EXPECT_FALSE(parse_request_head(kMessage.substr(0, size), head));
  for (std::size_t i = 0; i < 4; ++i) {
    std::string other(kMessage);
    ++other[i];
    EXPECT_FALSE(parse_request_head(other, head)) << "byte " << i;
  }
}

TEST(LeasedEntries, AnEntryIsKnownUntilItIsRemoved) {
  LeasedEntries held;
  EXPECT_EQ(held.add("1-0", head_of(7, 3)), 1U);
  EXPECT_EQ(held.add("1-0", head_of(8)), 0U);
  EXPECT_EQ(held.add("1-1", head_of(9)), 2U);
  EXPECT_EQ(held.unanswered_items({}), 4U);
  EXPECT_TRUE(held.contains("1-0"));
  EXPECT_EQ(held.remove("1-0"), 1U);
  EXPECT_EQ(held.remove("1-0"), 0U);
  EXPECT_FALSE(held.contains("1-0"));
  EXPECT_EQ(held.unanswered_items({}), 1U);
  EXPECT_EQ(held.ids(), std::vector<std::string>{"1-1"});
  EXPECT_EQ(held.add("1-0", head_of(7)), 3U);
}

TEST(LeasedEntries, EachStreamHasItsOwnEntriesAndItems) {
  LeasedEntries held;
  EXPECT_EQ(held.add("1-0", head_of(7, 3)), 1U);
  EXPECT_EQ(held.add("1-0:b", head_of(8, 4)), 2U);
  EXPECT_EQ(held.unanswered_items({}), 3U);
  EXPECT_EQ(held.unanswered_items(":b"), 4U);
  EXPECT_EQ(held.unanswered_items(":c"), 0U);
  EXPECT_EQ(held.remove("1-0:b"), 2U);
  EXPECT_EQ(held.unanswered_items(":b"), 0U);
  EXPECT_EQ(held.unanswered_items({}), 3U);
}

TEST(LeasedEntries, AnEntryIsAnsweredOnceAndKnownUntilItIsRemoved) {
  LeasedEntries held;
  held.add("1-0", head_of(7, 3));
  const auto entry = held.answer(1);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->id, "1-0");
  EXPECT_EQ(std::uint64_t{entry->head.request}, 7U);
  EXPECT_EQ(held.unanswered_items({}), 0U);
  EXPECT_EQ(held.size(), 1U);
  EXPECT_FALSE(held.answer(1));
  EXPECT_EQ(held.remove("1-0"), 1U);
  EXPECT_EQ(held.unanswered_items({}), 0U);
  held.add("1-1", head_of(8));
  held.remove("1-1");
  EXPECT_FALSE(held.answer(2));
}

constexpr std::string_view kReply =
    "SS\1\2"
    "\2\0\0\0"
    "\2\1\0\0\0\0\0\0"
    "\x40\0\0\0"
    "\3\0\0\0"
    "\4\0\0\0"
    "body"
    "\5\0\0\0\0\0\0\0"
    "\0\0\0\0"
    "\1\0\0\0"
    "\0\0\0\0"sv;

TEST(ClientReply, HasTheDocumentedLayout) {
  ClientReply reply;
  reply.add({.request = 0x0102, .begin = 64, .items = 3, .body = "body"});
  reply.add({.request = 5, .begin = 0, .items = 1, .body = {}});
  std::string written(reply.size(), '\0');
  reply.write(written.data());
  EXPECT_EQ(written, kReply);

  std::vector<BrokerAnswer> answers;
  ASSERT_TRUE(ClientReply::parse(kReply, answers));
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].request, 0x0102U);
  EXPECT_EQ(answers[0].begin, 64U);
  EXPECT_EQ(answers[0].items, 3U);
  EXPECT_EQ(answers[0].body, "body");
  EXPECT_EQ(answers[1].request, 5U);
  EXPECT_TRUE(answers[1].body.empty());
}

TEST(ClientReply, ATruncatedMessageIsRejected) {
  std::vector<BrokerAnswer> answers;
  for (std::size_t size = 0; size < kReply.size(); ++size) {
    EXPECT_FALSE(ClientReply::parse(kReply.substr(0, size), answers)) << size;
  }
  EXPECT_FALSE(ClientReply::parse(std::string(kReply) + "x", answers));
  for (const std::size_t at : {0U, 1U, 2U, 3U, 4U, 7U, 24U, 27U}) {  // start, count, size
    std::string other(kReply);
    ++other[at];
    EXPECT_FALSE(ClientReply::parse(other, answers)) << at;
  }
}

}  // namespace
}  // namespace service_streamer::ipc
