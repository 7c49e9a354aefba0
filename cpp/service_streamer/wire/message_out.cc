#include <unistd.h>

#include <algorithm>
#include <utility>

#include "service_streamer/wire/message.h"
#include "service_streamer/wire/wire.h"

namespace service_streamer::ipc {
namespace {

OutMessage message_of(MessageType type, std::uint64_t id = 0) {
  OutMessage message;
  message.type = type;
  message.id = id;
  return message;
}

// Below that a copy into the head costs less than a slice of its own.
constexpr std::size_t kCopied = 4096;

void append_blocks(OutMessage& message) {
  message.block_table = message.head.size();
  for (const BlockRef& block : message.blocks) {
    wire::append(message.head, wire::Block{.size = block->size(), .handle = 0});
  }
}

// After everything else.
void append_bytes(OutMessage& message, const Bytes& bytes) {
  if (bytes.size() < kCopied && message.tail.empty()) {
    message.head.append(bytes.text());
  } else if (!bytes.empty()) {
    message.tail.push_back(bytes);
  }
}

void append_ends(OutMessage& message, const PayloadRange& range, std::uint64_t before) {
  const std::uint64_t begin = range.payload->begin_of(range.begin);
  const auto* ends = range.payload->ends.data() + range.begin;
  for (std::uint32_t i = 0; i < range.count; ++i) wire::append(message.head, ends[i] - begin + before);
}

// Adds the range's blocks to the message, and to the head the number of the item that each belongs to.
void append_block_items(OutMessage& message, const PayloadRange& range, std::uint32_t before) {
  const std::vector<Payload::Block>& blocks = range.payload->blocks;
  auto block = std::lower_bound(blocks.begin(), blocks.end(), range.begin,
                                [](const Payload::Block& other, std::uint32_t item) { return other.item < item; });
  for (; block != blocks.end() && block->item - range.begin < range.count; ++block) {
    wire::append(message.head, block->item - range.begin + before);
    message.blocks.push_back(block->block);
  }
}

std::size_t blocks_in(const PayloadRange& range) {
  const auto inside = [&](const Payload::Block& block) {
    return block.item >= range.begin && block.item - range.begin < range.count;
  };
  return static_cast<std::size_t>(std::count_if(range.payload->blocks.begin(), range.payload->blocks.end(), inside));
}

Bytes bytes_of(const PayloadRange& range) {
  const std::uint64_t begin = range.payload->begin_of(range.begin);
  return range.payload->bytes.slice(begin, range.payload->begin_of(range.begin + range.count) - begin);
}

PayloadRange all_of(const Payload& payload) {
  return {.payload = &payload, .begin = 0, .count = static_cast<std::uint32_t>(payload.items())};
}

std::int64_t to_wire(TimePoint time) {
  return time.time_since_epoch().count();
}

wire::Result append_result(OutMessage& message, const Result& result) {
  message.blocks.insert(message.blocks.end(), result.blocks.begin(), result.blocks.end());
  return {.kind = static_cast<std::uint8_t>(result.kind),
          .blocks = static_cast<std::uint32_t>(result.blocks.size()),
          .bytes = result.bytes.size()};
}

}  // namespace

OutMessage make_hello(Role role) {
  OutMessage message = message_of(MessageType::kHello);
  wire::append(message.head, wire::Hello{.version = kProtocolVersion,
                                         .role = static_cast<std::uint32_t>(role),
                                         .pid = static_cast<std::int32_t>(getpid())});
  return message;
}

OutMessage make_text(MessageType type, std::string_view text) {
  OutMessage message = message_of(type);
  message.head = text;
  return message;
}

OutMessage make_opaque(MessageType type, std::uint64_t id, const Bytes& bytes) {
  OutMessage message = message_of(type, id);
  append_bytes(message, bytes);
  return message;
}

OutMessage make_ids(MessageType type, std::span<const std::uint64_t> ids) {
  OutMessage message = message_of(type);
  message.head.assign(reinterpret_cast<const char*>(ids.data()), ids.size_bytes());
  return message;
}

OutMessage make_batch(std::uint64_t id, std::span<const BatchHead> parts, std::span<const PayloadRange> items) {
  OutMessage message = message_of(MessageType::kBatch, id);
  std::uint32_t count = 0;
  std::size_t blocks = 0;
  for (const PayloadRange& range : items) {
    count += range.count;
    if (!range.payload->blocks.empty()) blocks += blocks_in(range);
  }
  message.head.reserve(sizeof(wire::Batch) + parts.size() * sizeof(wire::BatchPart) + count * std::size_t{8} +
                       blocks * (4 + sizeof(wire::Block)) + items.size() * 128);
  message.blocks.reserve(blocks);

  wire::append(message.head, wire::Batch{.parts = static_cast<std::uint32_t>(parts.size()),
                                         .items = count,
                                         .blocks = static_cast<std::uint32_t>(blocks)});
  for (const BatchHead& part : parts) {
    wire::append(message.head, wire::BatchPart{.deadline = to_wire(part.deadline),
                                               .items = part.items,
                                               .whole = static_cast<std::uint8_t>(part.whole ? 1 : 0)});
  }
  std::uint64_t size = 0;
  for (const PayloadRange& range : items) {
    append_ends(message, range, size);
    size += range.payload->begin_of(range.begin + range.count) - range.payload->begin_of(range.begin);
  }
  count = 0;
  for (const PayloadRange& range : items) {
    append_block_items(message, range, count);
    count += range.count;
  }
  append_blocks(message);
  for (const PayloadRange& range : items) append_bytes(message, bytes_of(range));
  return message;
}

OutMessage make_reply(std::uint64_t id, const ReplyMessage& reply) {
  OutMessage message = message_of(MessageType::kReply, id);
  wire::append(message.head, wire::Reply{.isolated = reply.isolated,
                                         .unread = reply.unread,
                                         .decode = reply.decode.count(),
                                         .predict = reply.predict.count(),
                                         .encode = reply.encode.count(),
                                         .results = static_cast<std::uint32_t>(reply.results.size())});
  for (const Result& result : reply.results) wire::append(message.head, append_result(message, result));
  append_blocks(message);
  for (const Result& result : reply.results) append_bytes(message, result.bytes);
  return message;
}

OutMessage make_submit(std::span<const SubmitHead> heads, std::span<const Payload* const> payloads) {
  OutMessage message = message_of(MessageType::kSubmit);
  wire::append(message.head, wire::Submit{.requests = static_cast<std::uint32_t>(heads.size())});
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const Payload& payload = *payloads[i];
    wire::append(message.head, wire::SubmitRequest{.id = heads[i].id,
                                                   .deadline = to_wire(heads[i].deadline),
                                                   .bytes = payload.begin_of(payload.items()),
                                                   .priority = heads[i].priority,
                                                   .items = static_cast<std::uint32_t>(payload.items()),
                                                   .blocks = static_cast<std::uint32_t>(payload.blocks.size())});
  }
  for (const Payload* payload : payloads) append_ends(message, all_of(*payload), 0);
  for (const Payload* payload : payloads) append_block_items(message, all_of(*payload), 0);
  append_blocks(message);
  for (const Payload* payload : payloads) append_bytes(message, bytes_of(all_of(*payload)));
  return message;
}

OutMessage make_closed() {
  return message_of(MessageType::kClosed);
}

OutMessage make_results(std::span<const EndedCall> calls) {
  OutMessage message = message_of(MessageType::kResults);
  wire::append(message.head, wire::Results{.calls = static_cast<std::uint32_t>(calls.size())});
  for (const EndedCall& call : calls) {
    wire::append(message.head, wire::ResultsCall{.id = call.id,
                                                 .outcome = static_cast<std::uint8_t>(call.outcome),
                                                 .pieces = static_cast<std::uint32_t>(call.pieces.size()),
                                                 .note = static_cast<std::uint32_t>(call.note.size())});
  }
  for (const EndedCall& call : calls) {
    for (const ResultPiece& piece : call.pieces) {
      wire::append(message.head,
                   wire::ResultsPiece{
                       .begin = piece.begin, .count = piece.count, .result = append_result(message, piece.result)});
    }
  }
  append_blocks(message);
  for (const EndedCall& call : calls) message.head.append(call.note);
  for (const EndedCall& call : calls) {
    for (const ResultPiece& piece : call.pieces) append_bytes(message, piece.result.bytes);
  }
  return message;
}

}  // namespace service_streamer::ipc
