// The seeds of the fuzzer: valid messages, in files. This test makes them and compares. After a change of the protocol,
// run it with SERVICE_STREAMER_WRITE_SEEDS=1 to write the files.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/hostile_stream.h"
#include "service_streamer/wire/frame.h"
#include "service_streamer/wire/wire.h"
#include "support/ipc.h"

namespace service_streamer::ipc::support {
namespace {

std::filesystem::path folder() {
  return SEEDS_FOLDER;
}

std::string one_write(const std::string& bytes, std::size_t descriptors) {
  const std::string head{static_cast<char>(descriptors), 0, static_cast<char>(bytes.size() % 256),
                         static_cast<char>(bytes.size() / 256)};
  return head + bytes;
}

// A write of the fuzzer's input.
std::string stream_of(const OutMessage& message) {
  std::string body = message.head;
  for (const Bytes& bytes : message.tail) body += bytes.text();
  const FrameHeader header{.magic = kMagic,
                           .type = message.type,
                           .reserved = 0,
                           .descriptors = static_cast<std::uint32_t>(message.blocks.size()),
                           .reserved2 = 0,
                           .body = body.size(),
                           .id = message.id};
  std::string bytes;
  wire::append(bytes, header);
  return one_write(bytes + body, message.blocks.size());
}

std::string play_of(const std::string& input) {
  return std::to_string(fuzz::play({reinterpret_cast<const std::uint8_t*>(input.data()), input.size()}));
}

// The seeds by name. Each is one message; the last is a session.
std::map<std::string, std::string> seeds() {
  const auto pool = SharedPool::make();
  const BlockRef block = block_of(*pool, "block");
  Payload payload = payload_of({"one", "", "three"});
  payload.blocks = {{.item = 0, .block = block}};
  Payload plain = payload_of({"x"});

  OutMessage hello = make_hello(Role::kClient);
  hello.head.replace(8, 4, 4, '\0');  // the pid
  ReplyMessage reply;
  reply.results.push_back({.kind = ResultKind::kOutputs, .bytes = Bytes::copy_of("outputs"), .blocks = {}});
  reply.results.push_back({.kind = ResultKind::kRows, .bytes = Bytes::copy_of("rows"), .blocks = {block, block}});
  const auto context = std::make_shared<const std::string>("context");
  const auto traits = std::make_shared<ItemTraits>(ItemTraits{.keys = {1}, .weights = {2.5}, .tenant = "tenant"});
  const std::vector<SubmitHead> heads{{.id = 1, .priority = 1, .deadline = TimePoint(Duration(9))},
                                      {.id = 2, .context = context, .traits = traits}};
  const std::vector<const Payload*> payloads{&payload, &plain};
  std::vector<EndedCall> calls(2);
  calls[0] = {.id = 1, .outcome = Outcome::kAnswered, .note = "", .ranges = {}};
  calls[0].ranges.push_back({.begin = 0, .count = 2, .result = reply.results[1]});
  calls[0].ranges.push_back({.begin = 2, .count = 1, .result = reply.results[0]});
  calls[1] = {.id = 2, .outcome = Outcome::kLost, .note = "killed", .ranges = {}};
  const std::vector<RangeHead> ranges{{.items = 3, .context = context, .queue_time = Duration(5)},
                                      {.items = 1, .deadline = TimePoint(Duration(9))}};
  const std::vector<PayloadRange> chunks{all_of(payload), all_of(plain)};
  const std::vector<std::uint64_t> first_handle{0};
  const Query configure{
      .kind = QueryKind::kConfigure,
      .request = 0,
      .change = {.batch_size = 8, .max_latency = Duration(9), .policy = PolicyKind::kWindow, .slo = Duration(7)}};

  std::map<std::string, std::string> all{
      {"hello", stream_of(hello)},
      {"setup", stream_of(make_opaque(MessageType::kSetup, 0, Bytes::copy_of("model")))},
      {"ready", stream_of(make_text(MessageType::kReady, "{}"))},
      {"batch", stream_of(make_batch(1, {.reason = CloseReason::kLinger, .age = Duration(5)}, ranges, chunks))},
      {"reply", stream_of(make_reply(1, reply))},
      {"query", stream_of(make_query(1, configure))},
      {"query_reply", stream_of(make_query_reply(1, {.yes = false, .text = "why not"}))},
      {"cancel", stream_of(make_ids(MessageType::kCancel, std::vector<std::uint64_t>{1, 2}))},
      {"submit", stream_of(make_submit(heads, payloads))},
      {"results", stream_of(make_results(calls))},
  };
  std::string session;
  for (const auto& [name, bytes] : all) session += bytes;
  session += stream_of(make_ids(MessageType::kReleased, first_handle));
  all["session"] = session;
  // In writes of 20 bytes; the descriptors come with the first.
  const std::string whole = all["submit"].substr(4);
  std::string pieces;
  for (std::size_t at = 0; at < whole.size(); at += 20) pieces += one_write(whole.substr(at, 20), at == 0 ? 1 : 0);
  all["pieces"] = pieces;
  return all;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(MessageSeeds, AreValidMessages) {
  const bool write = getenv("SERVICE_STREAMER_WRITE_SEEDS") != nullptr;  // NOLINT(concurrency-mt-unsafe): no threads
  for (const auto& [name, bytes] : seeds()) {
    if (write) {
      std::ofstream(folder() / name, std::ios::binary) << bytes;
    }
    EXPECT_TRUE(read_file(folder() / name) == bytes) << name << ": the protocol is another one; write the seeds again";
  }
}

TEST(MessageSeeds, AreAccepted) {
  for (const auto& [name, bytes] : seeds()) EXPECT_EQ(play_of(bytes), name == "session" ? "10" : "1") << name;
}

TEST(MessageSeeds, AndInputsFoundByTheFuzzerAreHarmless) {
  play_of(read_file(folder() / "session"));  // opens descriptors that stay open
  const std::size_t before = open_descriptors();
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    const std::string bytes = read_file(entry.path());
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut) play_of(bytes.substr(0, cut));
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (const char value : {'\0', '\x01', '\x7f', '\xff'}) {
        std::string changed = bytes;
        changed[at] = value;
        play_of(changed);
      }
    }
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace service_streamer::ipc::support
