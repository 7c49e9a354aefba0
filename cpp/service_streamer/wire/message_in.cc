#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "service_streamer/wire/message.h"
#include "service_streamer/wire/wire.h"

namespace service_streamer::ipc {
namespace {

using wire::ByteReader;

// Longer durations are invalid: sums of them could overflow.
constexpr std::int64_t kMaxDuration = 1'000'000'000'000'000'000;

bool to_time(std::int64_t count, TimePoint& time) {
  time = TimePoint(Duration(count));
  return count >= 0;
}

bool to_duration(std::int64_t count, Duration& duration) {
  duration = Duration(count);
  return count >= 0 && count <= kMaxDuration;
}

// Parses the body of a message that may have blocks.
class BodyReader {
 public:
  bool open(InMessage& message, MessageType type) {
    ByteReader body(message.body);
    wire::Start start{};
    Bytes values;
    Bytes bytes;
    if (message.type != type || !body.read(start) || !read_blocks(body, message, start.blocks) ||
        start.bytes > body.left() || !body.read(values, body.left() - start.bytes) || !body.read(bytes, start.bytes)) {
      return false;
    }
    values_ = ByteReader(std::move(values));
    bytes_ = ByteReader(std::move(bytes));
    count_ = start.count;
    return true;
  }

  std::uint32_t count() const { return count_; }
  ByteReader& values() { return values_; }
  bool at_end() const { return values_.at_end() && bytes_.at_end() && next_block_ == blocks_.size(); }

  bool read(Payload& payload) {
    wire::Payload head{};
    std::vector<std::uint32_t> items;
    if (!values_.read(head) || !values_.read(payload.ends, head.items) || !std::ranges::is_sorted(payload.ends) ||
        !bytes_.read(payload.bytes, payload.begin_of(head.items)) || !values_.read(items, head.blocks) ||
        !has_blocks(head.blocks) || !std::ranges::is_sorted(items) || (!items.empty() && items.back() >= head.items)) {
      return false;
    }
    payload.blocks.reserve(items.size());
    for (const std::uint32_t item : items) payload.blocks.push_back({.item = item, .block = next_block()});
    return true;
  }

  bool read(Result& result, ResultKind last_kind) {
    wire::Result head{};
    if (!values_.read(head) || !wire::to_enum(head.kind, last_kind, result.kind) || !has_blocks(head.blocks) ||
        !bytes_.read(result.bytes, head.bytes)) {
      return false;
    }
    result.blocks.reserve(head.blocks);
    while (result.blocks.size() < head.blocks) result.blocks.push_back(next_block());
    return true;
  }

 private:
  // Makes a block of each entry of the table. Entries and descriptors must match; an entry with the flag has no
  // descriptor.
  bool read_blocks(ByteReader& body, InMessage& message, std::uint32_t count) {
    std::vector<wire::Block> table;
    if (!body.read(table, count)) return false;
    blocks_.reserve(count);
    auto descriptor = message.descriptors.begin();
    for (const wire::Block& entry : table) {
      FileDescriptor fd;
      if ((entry.handle & wire::kHandleFlag) == 0) {
        if (descriptor == message.descriptors.end()) return false;
        fd = std::move(*descriptor++);
        if (fd && !is_block(fd, entry.size)) return false;
      }
      blocks_.push_back(std::make_shared<const SharedBlock>(std::move(fd), entry.size, message.owner,
                                                            entry.handle & ~wire::kHandleFlag));
    }
    if (descriptor != message.descriptors.end()) return false;
    message.descriptors.clear();
    return true;
  }

  bool has_blocks(std::uint32_t count) const { return count <= blocks_.size() - next_block_; }
  BlockRef next_block() { return std::move(blocks_[next_block_++]); }

  ByteReader values_;
  ByteReader bytes_;
  std::vector<BlockRef> blocks_;
  std::size_t next_block_ = 0;
  std::uint32_t count_ = 0;
};

bool read_context(ByteReader& values, std::uint16_t size, TraceContext& context) {
  Bytes bytes;
  if (size > kMaxTraceContext || !values.read(bytes, size)) return false;
  if (size > 0) context = std::make_shared<const std::string>(bytes.text());
  return true;
}

bool read_request(BodyReader& body, SubmittedRequest& request) {
  wire::SubmitRequest head{};
  if (!body.values().read(head) || !to_time(head.deadline, request.head.deadline) ||
      !read_context(body.values(), head.context, request.head.context)) {
    return false;
  }
  request.head.id = head.id;
  request.head.priority = head.priority;
  return body.read(request.payload) && request.payload.items() > 0 &&
         read_traits(body.values(), head.traits, request.payload.items(), request.head.traits);
}

bool read_range(BodyReader& body, ResultRange& range) {
  wire::ResultRange head{};
  if (!body.values().read(head)) return false;
  range.begin = head.begin;
  range.count = head.count;
  return head.count > 0 && head.begin + std::uint64_t{head.count} <= UINT32_MAX &&
         body.read(range.result, ResultKind::kError);
}

bool read_call(BodyReader& body, EndedCall& call) {
  constexpr std::size_t kRange = sizeof(wire::ResultRange) + sizeof(wire::Result);
  wire::ResultsCall head{};
  Bytes note;
  if (!body.values().read(head) || !wire::to_enum(head.outcome, Outcome::kRefused, call.outcome) ||
      !body.values().read(note, head.note) || !body.values().resize(call.ranges, head.ranges, kRange)) {
    return false;
  }
  call.id = head.id;
  call.note = note.text();
  return std::ranges::all_of(call.ranges, [&](ResultRange& range) { return read_range(body, range); });
}

}  // namespace

bool parse(const InMessage& message, Hello& hello) {
  wire::Hello head{};
  ByteReader body(message.body);
  if (message.type != MessageType::kHello || !body.read(head) || !body.at_end()) return false;
  hello.version = head.version;
  hello.pid = head.pid;
  return wire::to_enum(head.role, Role::kClient, hello.role);
}

bool parse(const InMessage& message, std::vector<std::uint64_t>& ids) {
  ByteReader body(message.body);
  return body.read(ids, body.left() / sizeof(std::uint64_t)) && body.at_end();
}

bool parse(InMessage& message, BatchMessage& batch) {
  BodyReader body;
  wire::Batch head{};
  std::vector<wire::RequestRange> heads;
  batch = {};
  if (!body.open(message, MessageType::kBatch) || !body.values().read(head) ||
      !wire::to_enum(head.reason, CloseReason::kDrain, batch.head.reason) || !to_duration(head.age, batch.head.age) ||
      !body.values().read(heads, body.count())) {
    return false;
  }
  std::uint64_t items = 0;
  batch.ranges.reserve(heads.size());
  for (const auto& [deadline, count, whole, context, queue_time] : heads) {
    RangeHead& range = batch.ranges.emplace_back(RangeHead{.items = count, .whole = whole != 0});
    if (count == 0 || whole > 1 || !to_time(deadline, range.deadline) || !to_duration(queue_time, range.queue_time) ||
        !read_context(body.values(), context, range.context)) {
      return false;
    }
    items += count;
  }
  return body.read(batch.payload) && body.at_end() && items == batch.payload.items();
}

bool parse(InMessage& message, ReplyMessage& reply) {
  BodyReader body;
  wire::Reply head{};
  reply = {};
  if (!body.open(message, MessageType::kReply) || !body.values().read(head) || head.isolated > 1 ||
      head.out_of_memory > 1 || !to_duration(head.decode, reply.decode) || !to_duration(head.predict, reply.predict) ||
      !to_duration(head.encode, reply.encode) ||
      !body.values().resize(reply.results, body.count(), sizeof(wire::Result))) {
    return false;
  }
  reply.isolated = head.isolated != 0;
  reply.memory = {.failed = head.memory_failed, .passed = head.memory_passed};
  reply.out_of_memory = head.out_of_memory != 0;
  return std::ranges::all_of(reply.results,
                             [&](Result& result) { return body.read(result, ResultKind::kPostponed); }) &&
         body.at_end();
}

bool parse(InMessage& message, std::vector<SubmittedRequest>& requests) {
  BodyReader body;
  requests.clear();
  return body.open(message, MessageType::kSubmit) &&
         body.values().resize(requests, body.count(), sizeof(wire::SubmitRequest) + sizeof(wire::Payload)) &&
         std::ranges::all_of(requests, [&](SubmittedRequest& request) { return read_request(body, request); }) &&
         body.at_end();
}

bool parse(InMessage& message, std::vector<EndedCall>& calls) {
  BodyReader body;
  calls.clear();
  return body.open(message, MessageType::kResults) &&
         body.values().resize(calls, body.count(), sizeof(wire::ResultsCall)) &&
         std::ranges::all_of(calls, [&](EndedCall& call) { return read_call(body, call); }) && body.at_end();
}

bool parse(const InMessage& message, Query& query) {
  wire::Query head{};
  ByteReader body(message.body);
  PolicyKind policy{};
  if (message.type != MessageType::kQuery || !body.read(head) || !body.at_end() || head.given > wire::kAllSettings ||
      !wire::to_enum(head.policy, PolicyKind::kWindow, policy)) {
    return false;
  }
  query.request = head.request;
  query.change = {};
  if ((head.given & wire::kBatchSize) != 0) query.change.batch_size = std::size_t{head.batch_size};
  if ((head.given & wire::kMaxLatency) != 0) query.change.max_latency = Duration(std::int64_t{head.max_latency});
  if ((head.given & wire::kPolicy) != 0) query.change.policy = policy;
  if ((head.given & wire::kSlo) != 0) query.change.slo = Duration(std::int64_t{head.slo});
  query.limit = Duration(std::int64_t{head.limit});
  query.max_events = head.max_events;
  return wire::to_enum(head.kind, QueryKind::kFinishRecording, query.kind);
}

bool parse(const InMessage& message, QueryReply& reply) {
  const std::string_view text = message.body.text();
  if (message.type != MessageType::kQueryReply || text.empty() || (text[0] != 'y' && text[0] != 'n')) return false;
  reply = {.yes = text[0] == 'y', .text = std::string(text.substr(1))};
  return true;
}

}  // namespace service_streamer::ipc
