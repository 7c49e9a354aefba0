// Bodies for other machines: parsing returns what was written, and rejects all other bytes.

#include "service_streamer/wire/broker_body.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "fuzz/broker_body_input.h"
#include "support/broker_bodies.h"
#include "support/ipc.h"

namespace service_streamer::support {
namespace {

using ipc::Payload;
using ipc::ResultKind;
using namespace std::string_literals;

Chunk chunk_of(const std::vector<std::string>& items, std::uint32_t begin, std::uint32_t count,
               TraceContext context = nullptr) {
  auto payload = std::make_shared<const Payload>(ipc::support::payload_of(items));
  return {.begin = begin, .items = count, .payload = std::move(payload), .context = std::move(context)};
}

bool is_request(const std::string& text) {
  Payload payload;
  TraceContext context;
  ipc::TraitsRef traits;
  return parse_request(Bytes::copy_of(text), payload, context, traits);
}

bool is_result(const std::string& text, std::uint32_t items) {
  EndedCall result;
  return parse_result(Bytes::copy_of(text), items, result);
}

// Expects every truncated or extended body to be rejected.
template <typename Accepts>
void expect_only_whole(const std::string& text, const Accepts& accepts) {
  EXPECT_TRUE(accepts(text));
  for (std::size_t cut = 0; cut < text.size(); ++cut) EXPECT_FALSE(accepts(text.substr(0, cut))) << cut;
  EXPECT_FALSE(accepts(text + "x"));
}

std::string with(std::string text, std::size_t at, const std::string& bytes) {
  return text.replace(at, bytes.size(), bytes);
}

TEST(RequestBody, HasTheItemsOfItsRange) {
  const Chunk range = chunk_of({"one", "", "three", "4"}, 1, 2);
  EXPECT_EQ(range.item_bytes(), 5U);
  EXPECT_EQ(text_of(range), "\2\0\0\0"s + "\0\0\0\0"s + "\5\0\0\0"s + "three");
  Payload payload;
  TraceContext context = context_of("old");
  ipc::TraitsRef traits;
  ASSERT_TRUE(parse_request(body_of(range), payload, context, traits));
  EXPECT_EQ(context, nullptr);
  ASSERT_EQ(payload.items(), 2U);
  EXPECT_EQ(ipc::support::item_of(payload, 0), "");
  EXPECT_EQ(ipc::support::item_of(payload, 1), "three");
  EXPECT_TRUE(payload.blocks.empty());
}

TEST(RequestBody, IsLittleEndianAndMayHaveManyItems) {
  const Chunk range = chunk_of(std::vector<std::string>(300, std::string(300, 'x')), 0, 300);
  const std::string text = text_of(range);
  EXPECT_EQ(text.substr(0, 8), "\x2c\1\0\0\x2c\1\0\0"s);
  EXPECT_EQ(text.size(), 4 + 300 * 4 + 90'000U);
  EXPECT_TRUE(is_request(text));
}

TEST(RequestBody, ATruncatedBodyIsRejected) {
  expect_only_whole(text_of(chunk_of({"one", "", "three"}, 0, 3)), is_request);
}

TEST(RequestBody, CountsAndEndsAreChecked) {
  const std::string sound = text_of(chunk_of({"one", "two"}, 0, 2));
  EXPECT_FALSE(is_request(with(sound, 0, "\0"s))) << "no items";
  EXPECT_FALSE(is_request(with(sound, 0, "\3"s))) << "more items than ends";
  EXPECT_FALSE(is_request(with(sound, 0, "\xff\xff\xff\xff"s)));
  EXPECT_FALSE(is_request(with(sound, 4, "\7"s))) << "ends that descend";
  EXPECT_FALSE(is_request(with(sound, 8, "\5"s))) << "bytes of no item";
  EXPECT_FALSE(is_request(with(sound, 8, "\7"s))) << "items without bytes";
  EXPECT_FALSE(is_request("\0\0\0\0"s));
}

TEST(RequestBody, MayEndWithTheTraitsOfItsItems) {
  Chunk range = chunk_of({"one", "two", "three"}, 1, 2);
  const std::string plain = text_of(range);
  range.traits = std::make_shared<ItemTraits>(ItemTraits{.keys = {7, 8, 9}, .weights = {0.5, 1.5, 2.5}});
  const std::string text = text_of(range);
  EXPECT_EQ(text.substr(0, plain.size()), plain);
  Payload payload;
  TraceContext context;
  ipc::TraitsRef traits;
  ASSERT_TRUE(parse_request(Bytes::copy_of(text), payload, context, traits));
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(traits->keys, (std::vector<std::uint64_t>{8, 9}));
  EXPECT_EQ(traits->weights, (std::vector<double>{1.5, 2.5}));
  for (std::size_t cut = plain.size() + 1; cut < text.size(); ++cut) EXPECT_FALSE(is_request(text.substr(0, cut)));
  EXPECT_FALSE(is_request(text + "x"));
  EXPECT_FALSE(is_request(with(text, plain.size() + 2, "\x08"s))) << "an unknown flag";
  EXPECT_FALSE(is_request(with(text, text.size() - 8, "\0\0\0\0\0\0\xf0\x7f"s))) << "a weight that is not finite";
}

TEST(RequestBody, MayEndWithATenant) {
  Chunk range = chunk_of({"one", "two"}, 0, 2);
  const std::string plain = text_of(range);
  range.traits = std::make_shared<ItemTraits>(ItemTraits{.keys = {}, .weights = {}, .tenant = "K\u00e4ufer"});
  const std::string text = text_of(range);
  EXPECT_EQ(text, plain + "\0\0\4\7\0K\u00e4ufer"s);
  Payload payload;
  TraceContext context;
  ipc::TraitsRef traits;
  ASSERT_TRUE(parse_request(Bytes::copy_of(text), payload, context, traits));
  EXPECT_EQ(traits->tenant, "K\u00e4ufer");
  for (std::size_t cut = plain.size() + 1; cut < text.size(); ++cut) EXPECT_FALSE(is_request(text.substr(0, cut)));
  const auto with_tenant = [&](const std::string& name) {
    return plain + "\0\0\4"s + static_cast<char>(name.size() & 0xFF) + static_cast<char>(name.size() >> 8) + name;
  };
  EXPECT_TRUE(is_request(with_tenant(std::string(kMaxTenant, 'x'))));
  EXPECT_FALSE(is_request(with_tenant(std::string(kMaxTenant + 1, 'x'))));
  EXPECT_FALSE(is_request(with_tenant("")));
  EXPECT_TRUE(is_request(with_tenant("\xf0\x9f\x99\x82 \xe2\x82\xac")));
  for (const char* wrong :
       {"\x80", "\xc3", "\xc3x", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"}) {
    EXPECT_FALSE(is_request(with_tenant(wrong))) << "not UTF-8";
  }
}

TEST(RequestBody, MayEndWithATraceContext) {
  const std::string plain = text_of(chunk_of({"one", "two"}, 0, 2));
  const std::string text = text_of(chunk_of({"one", "two"}, 0, 2, context_of("context")));
  EXPECT_EQ(text, plain + "\7\0context\0"s);
  Payload payload;
  TraceContext context;
  ipc::TraitsRef traits;
  ASSERT_TRUE(parse_request(Bytes::copy_of(text), payload, context, traits));
  EXPECT_EQ(*context, "context");
  EXPECT_EQ(ipc::support::item_of(payload, 1), "two");
  for (std::size_t cut = plain.size() + 1; cut < text.size(); ++cut) EXPECT_FALSE(is_request(text.substr(0, cut)));
  EXPECT_FALSE(is_request(text + "x"));
  EXPECT_FALSE(is_request(plain + "\0\0\0"s)) << "neither a context nor traits";
  EXPECT_TRUE(is_request(plain + "\0\4"s + std::string(kMaxTraceContext, 'x') + "\0"s));
  EXPECT_FALSE(is_request(plain + "\1\4"s + std::string(kMaxTraceContext + 1, 'x') + "\0"s));
}

TEST(ResultBody, HasOutputs) {
  EndedCall result{.id = 9, .outcome = Outcome::kAnswered, .note = {}, .ranges = {}};
  result.ranges.push_back(range_of(0, 2, Bytes::copy_of("rows"), ResultKind::kRows));
  result.ranges.push_back(range_of(2, 1, Bytes{}));
  const std::string text = text_of(result);
  EXPECT_EQ(text, "\0\0\0\0\0\2\0\0\0"s + "\0\0\0\0\2\0\0\0\1\4\0\0\0rows"s + "\2\0\0\0\1\0\0\0\0\0\0\0\0"s);
  EndedCall read;
  ASSERT_TRUE(parse_result(Bytes::copy_of(text), 3, read));
  EXPECT_EQ(read.outcome, Outcome::kAnswered);
  ASSERT_EQ(read.ranges.size(), 2U);
  EXPECT_EQ(read.ranges[0].result.kind, ResultKind::kRows);
  EXPECT_EQ(read.ranges[0].result.bytes.text(), "rows");
  EXPECT_EQ(read.ranges[1].begin, 2U);
  EXPECT_EQ(read.ranges[1].count, 1U);
  expect_only_whole(text, [](const std::string& other) { return is_result(other, 3); });
}

TEST(ResultBody, HasErrorsAndLosses) {
  EndedCall read;
  ASSERT_TRUE(parse_result(body_of(failure()), 7, read));
  EXPECT_EQ(read.outcome, Outcome::kFailed);
  EXPECT_EQ(read.ranges.at(0).result.bytes.text(), "error");
  ASSERT_TRUE(parse_result(body_of(loss("it died")), 7, read));
  EXPECT_EQ(read.outcome, Outcome::kLost);
  EXPECT_EQ(read.note, "it died");
  expect_only_whole(text_of(loss("it died")), [](const std::string& text) { return is_result(text, 7); });
}

TEST(ResultBody, TellsWhetherAWorkerWasAvailable) {
  EXPECT_TRUE(ipc::reports_no_worker(body_of(loss("init: no module")).text()));
  EXPECT_FALSE(ipc::reports_no_worker(body_of(loss("it died, init: no")).text()));
  EXPECT_FALSE(ipc::reports_no_worker(body_of(loss("")).text()));
  EXPECT_FALSE(ipc::reports_no_worker(body_of(failure()).text()));
  EXPECT_FALSE(ipc::reports_no_worker({}));
}

TEST(ResultBody, MustFitTheNumberOfItems) {
  EndedCall answered{.id = 0, .outcome = Outcome::kAnswered, .note = {}, .ranges = {}};
  EXPECT_FALSE(is_result(text_of(answered), 1)) << "no outputs";
  answered.ranges.push_back(range_of(0, 2, Bytes::copy_of("a")));
  EXPECT_TRUE(is_result(text_of(answered), 2));
  EXPECT_FALSE(is_result(text_of(answered), 1));
  EXPECT_FALSE(is_result(text_of(answered), 3));
  answered.ranges.push_back(range_of(3, 1, Bytes::copy_of("b")));
  EXPECT_FALSE(is_result(text_of(answered), 3)) << "a gap";
  answered.ranges[1].begin = 1;
  EXPECT_FALSE(is_result(text_of(answered), 3)) << "an overlap";
  answered.ranges[1] = range_of(2, UINT32_MAX, Bytes::copy_of("b"));
  EXPECT_FALSE(is_result(text_of(answered), 1)) << "a sum beyond 32 bits";
  answered.ranges[1] = range_of(2, 0, Bytes::copy_of("b"));
  EXPECT_FALSE(is_result(text_of(answered), 2)) << "outputs of no item";
  answered.ranges[1] = range_of(2, 1, Bytes::copy_of("b"), ResultKind::kError);
  EXPECT_FALSE(is_result(text_of(answered), 3)) << "an error among outputs";

  EndedCall failed = failure();
  failed.ranges[0].result.kind = ResultKind::kOutputs;
  EXPECT_FALSE(is_result(text_of(failed), 1)) << "outputs for an error";
  failed.ranges.clear();
  EXPECT_FALSE(is_result(text_of(failed), 1)) << "no error";
  EndedCall lost = loss("died");
  lost.ranges = failure().ranges;
  EXPECT_FALSE(is_result(text_of(lost), 1));
}

TEST(ResultBody, EnumsAndSizesAreChecked) {
  EndedCall answered{.id = 0, .outcome = Outcome::kAnswered, .note = {}, .ranges = {}};
  answered.ranges.push_back(range_of(0, 1, Bytes::copy_of("a")));
  const std::string sound = text_of(answered);
  ASSERT_TRUE(is_result(sound, 1));
  EXPECT_FALSE(is_result(with(sound, 0, "\3"s), 1)) << "outcome";
  EXPECT_FALSE(is_result(with(sound, 17, "\3"s), 1)) << "kind";
  EXPECT_FALSE(is_result(with(sound, 1, "\xff\xff\xff\xff"s), 1)) << "size of the note";
  EXPECT_FALSE(is_result(with(sound, 5, "\xff\xff\xff\xff"s), 1)) << "ranges";
  EXPECT_FALSE(is_result(with(sound, 18, "\xff\xff\xff\xff"s), 1)) << "size of a range";
}

// Parses as the fuzzer does: accepted bytes must be written unchanged.
std::size_t read_as_bodies(const std::string& text) {
  return ipc::fuzz::read_as_bodies({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

// The fuzzer's input of a result: the number of its items, then the body.
std::string of_items(std::uint8_t items, const EndedCall& result) {
  return std::string(1, static_cast<char>(items)).append(text_of(result));
}

TEST(Chunks, AnyChangedByteIsHarmless) {
  EndedCall answered{.id = 0, .outcome = Outcome::kAnswered, .note = "note", .ranges = {}};
  answered.ranges.push_back(range_of(0, 2, Bytes::copy_of("rows"), ResultKind::kRows));
  answered.ranges.push_back(range_of(2, 1, Bytes{}));
  const std::vector<std::string> sound{text_of(chunk_of({"one", "", "three"}, 0, 3)),
                                       text_of(chunk_of({"one"}, 0, 1, context_of("context"))), of_items(3, answered),
                                       of_items(1, failure()), of_items(1, loss("it died"))};
  for (const std::string& text : sound) {
    EXPECT_EQ(read_as_bodies(text), 1U);
    for (std::size_t cut = 0; cut < text.size(); ++cut) read_as_bodies(text.substr(0, cut));
    for (std::size_t at = 0; at < text.size(); ++at) {
      for (int value = 0; value < 256; ++value)
        read_as_bodies(with(text, at, std::string(1, static_cast<char>(value))));
    }
  }
}

TEST(ResultBody, AResultThatIsTooLargeHasNoBody) {
  EndedCall answered{.id = 0, .outcome = Outcome::kAnswered, .note = {}, .ranges = {}};
  const std::byte some{};
  answered.ranges.push_back(range_of(0, 1, Bytes(nullptr, &some, 5'000'000'000)));  // the bytes are not read
  EXPECT_NE(encoding_error(answered).find("5000000013 bytes"), std::string::npos) << encoding_error(answered);
}

TEST(ResultBody, AResultInSharedMemoryHasNoBody) {
  EndedCall answered{.id = 0, .outcome = Outcome::kAnswered, .note = {}, .ranges = {}};
  answered.ranges.push_back(range_of(0, 1, Bytes::copy_of("a")));
  EXPECT_EQ(encoding_error(answered), "");
  const auto pool = ipc::SharedPool::make();
  answered.ranges[0].result.blocks.push_back(ipc::support::block_of(*pool, "block"));
  EXPECT_NE(encoding_error(answered), "");
}

}  // namespace
}  // namespace service_streamer::support
