#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "service_streamer/wire/message.h"
#include "service_streamer/wire/wire.h"

namespace service_streamer::ipc {
namespace {

// Shorter bytes are copied into the head: that costs less than sending a slice.
constexpr std::size_t kMinSlice = 4096;

std::int64_t to_wire(TimePoint time) {
  return time.time_since_epoch().count();
}

std::uint16_t size_of(const TraceContext& context) {
  return context != nullptr ? static_cast<std::uint16_t>(context->size()) : 0;
}

// Builds the body of a message that may have blocks.
class BodyWriter {
 public:
  explicit BodyWriter(MessageType type, std::uint64_t id = 0) {
    message_.type = type;
    message_.id = id;
  }

  template <typename T>
  void add_value(const T& value) {
    wire::append(values_, value);
  }
  void add_text(std::string_view text) { values_ += text; }
  void add(const TraceContext& context) {
    if (context != nullptr) add_text(*context);
  }

  void add(const TraitsRef& traits, std::size_t items) {
    std::string text(traits_size(traits, items), '\0');
    char* to = text.data();
    write_traits(traits, 0, items, to);
    add_text(text);
  }

  // Joins the ranges to one payload.
  void add(std::span<const PayloadRange> ranges) {
    std::uint32_t items = 0;
    std::vector<std::uint32_t> block_items;
    for (const auto& [payload, begin, count] : ranges) {
      auto block = std::ranges::lower_bound(payload->blocks, begin, {}, &Payload::Block::item);
      for (; block != payload->blocks.end() && block->item - begin < count; ++block) {
        block_items.push_back(block->item - begin + items);
        message_.blocks.push_back(block->block);
      }
      items += count;
    }
    values_.reserve(values_.size() + sizeof(wire::Payload) + items * std::size_t{8} + block_items.size() * 4);
    add_value(wire::Payload{.items = items, .blocks = static_cast<std::uint32_t>(block_items.size())});
    std::uint64_t end = 0;
    for (const auto& [payload, begin, count] : ranges) {
      const std::uint64_t first = payload->begin_of(begin);
      const std::uint64_t size = payload->begin_of(std::size_t{begin} + count) - first;
      for (std::uint32_t i = 0; i < count; ++i) add_value(payload->ends[std::size_t{begin} + i] - first + end);
      add_bytes(payload->bytes.slice(first, size));
      end += size;
    }
    for (const std::uint32_t item : block_items) add_value(item);
  }

  void add(const Result& result) {
    add_value(wire::Result{.kind = static_cast<std::uint8_t>(result.kind),
                           .blocks = static_cast<std::uint32_t>(result.blocks.size()),
                           .bytes = result.bytes.size()});
    message_.blocks.insert(message_.blocks.end(), result.blocks.begin(), result.blocks.end());
    add_bytes(result.bytes);
  }

  // `count` is the number of ranges, results, requests or calls.
  OutMessage finish(std::size_t count) && {
    const auto blocks = static_cast<std::uint32_t>(message_.blocks.size());
    std::string& head = message_.head;
    head.reserve(sizeof(wire::Start) + blocks * sizeof(wire::Block) + values_.size() + copied_.size());
    wire::append(head, wire::Start{.count = static_cast<std::uint32_t>(count), .blocks = blocks, .bytes = bytes_});
    for (const BlockRef& block : message_.blocks) wire::append(head, wire::Block{.size = block->size(), .handle = 0});
    head += values_;
    head += copied_;
    return std::move(message_);
  }

 private:
  void add_bytes(const Bytes& bytes) {
    bytes_ += bytes.size();
    // The head comes before the tail, so once the tail has a slice, later bytes must follow there.
    if (bytes.size() < kMinSlice && message_.tail.empty()) {
      copied_ += bytes.text();
    } else if (!bytes.empty()) {
      message_.tail.push_back(bytes);
    }
  }

  OutMessage message_;
  std::string values_;
  std::string copied_;       // opaque bytes that are sent in the head
  std::uint64_t bytes_ = 0;  // size of all opaque bytes
};

}  // namespace

OutMessage make_text(MessageType type, std::string_view text, std::uint64_t id) {
  OutMessage message;
  message.type = type;
  message.id = id;
  message.head = text;
  return message;
}

OutMessage make_opaque(MessageType type, std::uint64_t id, const Bytes& bytes) {
  OutMessage message = make_text(type, {}, id);
  if (!bytes.empty()) message.tail.push_back(bytes);
  return message;
}

OutMessage make_ids(MessageType type, std::span<const std::uint64_t> ids) {
  return make_text(type, {reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
}

std::string retry_note(float seconds) {
  return std::to_string(seconds);
}

float retry_after(const std::string& note) {
  return std::strtof(note.c_str(), nullptr);
}

OutMessage make_hello(Role role) {
  OutMessage message = make_text(MessageType::kHello, {});
  wire::append(message.head, wire::Hello{.version = kProtocolVersion,
                                         .role = static_cast<std::uint32_t>(role),
                                         .pid = static_cast<std::int32_t>(getpid())});
  return message;
}

OutMessage make_batch(std::uint64_t id, const BatchHead& head, std::span<const RangeHead> ranges,
                      std::span<const PayloadRange> items) {
  BodyWriter body(MessageType::kBatch, id);
  body.add_value(wire::Batch{.reason = static_cast<std::uint8_t>(head.reason), .age = head.age.count()});
  for (const RangeHead& range : ranges) {
    body.add_value(wire::RequestRange{.deadline = to_wire(range.deadline),
                                      .items = range.items,
                                      .whole = static_cast<std::uint8_t>(range.whole ? 1 : 0),
                                      .context = size_of(range.context),
                                      .queue_time = range.queue_time.count()});
  }
  for (const RangeHead& range : ranges) body.add(range.context);
  body.add(items);
  return std::move(body).finish(ranges.size());
}

OutMessage make_reply(std::uint64_t id, const ReplyMessage& reply) {
  BodyWriter body(MessageType::kReply, id);
  body.add_value(wire::Reply{.isolated = reply.isolated,
                             .out_of_memory = reply.out_of_memory,
                             .memory_failed = static_cast<std::uint32_t>(reply.memory.failed),
                             .memory_passed = static_cast<std::uint32_t>(reply.memory.passed),
                             .decode = reply.decode.count(),
                             .predict = reply.predict.count(),
                             .encode = reply.encode.count()});
  for (const Result& result : reply.results) body.add(result);
  return std::move(body).finish(reply.results.size());
}

OutMessage make_submit(std::span<const SubmitHead> heads, std::span<const Payload* const> payloads) {
  BodyWriter body(MessageType::kSubmit);
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const auto& [id, priority, deadline, context, traits, sent] = heads[i];
    const auto items = static_cast<std::uint32_t>(payloads[i]->items());
    const PayloadRange range{.payload = payloads[i], .begin = 0, .count = items};
    body.add_value(wire::SubmitRequest{.id = id,
                                       .deadline = to_wire(deadline),
                                       .priority = priority,
                                       .context = size_of(context),
                                       .traits = traits_flags(traits)});
    body.add(context);
    body.add(std::span(&range, 1));
    body.add(traits, items);
  }
  return std::move(body).finish(heads.size());
}

OutMessage make_results(std::span<const EndedCall> calls) {
  BodyWriter body(MessageType::kResults);
  for (const EndedCall& call : calls) {
    body.add_value(wire::ResultsCall{.id = call.id,
                                     .outcome = static_cast<std::uint8_t>(call.outcome),
                                     .note = static_cast<std::uint32_t>(call.note.size()),
                                     .ranges = static_cast<std::uint32_t>(call.ranges.size())});
    body.add_text(call.note);
    for (const ResultRange& range : call.ranges) {
      body.add_value(wire::ResultRange{.begin = range.begin, .count = range.count});
      body.add(range.result);
    }
  }
  return std::move(body).finish(calls.size());
}

OutMessage make_query(std::uint64_t id, const Query& query) {
  OutMessage message = make_text(MessageType::kQuery, {}, id);
  const auto& [batch_size, max_latency, policy, slo] = query.change;
  const int given = (batch_size ? wire::kBatchSize : 0) | (max_latency ? wire::kMaxLatency : 0) |
                    (policy ? wire::kPolicy : 0) | (slo ? wire::kSlo : 0);
  wire::append(message.head, wire::Query{.kind = static_cast<std::uint8_t>(query.kind),
                                         .given = static_cast<std::uint8_t>(given),
                                         .policy = static_cast<std::uint8_t>(policy.value_or(PolicyKind{})),
                                         .request = query.request,
                                         .batch_size = batch_size.value_or(0),
                                         .max_latency = max_latency.value_or(Duration::zero()).count(),
                                         .slo = slo.value_or(Duration::zero()).count(),
                                         .limit = query.limit.count(),
                                         .max_events = query.max_events});
  return message;
}

// The text of a recording is large, so it is moved.
OutMessage make_query_reply(std::uint64_t id, QueryReply reply) {
  OutMessage message = make_text(MessageType::kQueryReply, {}, id);
  message.head = std::move(reply.text);
  message.head.insert(0, 1, reply.yes ? 'y' : 'n');
  return message;
}

}  // namespace service_streamer::ipc
