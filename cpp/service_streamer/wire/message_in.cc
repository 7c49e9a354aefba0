#include <algorithm>
#include <utility>

#include "service_streamer/wire/message.h"
#include "service_streamer/wire/wire.h"

namespace service_streamer::ipc {
namespace {

using wire::Reader;

// Times that cannot be would overflow in sums. 31 years from now are enough for everybody.
constexpr std::int64_t kLongest = 1'000'000'000'000'000'000;

bool to_time(std::int64_t count, TimePoint& time) {
  time = TimePoint(Duration(count));
  return count >= 0;
}

bool to_duration(std::int64_t count, Duration& duration) {
  duration = Duration(count);
  return count >= 0 && count <= kLongest;
}

// Makes blocks of the table's entries and of the descriptors that came along.
bool read_blocks(Reader& reader, InMessage& message, std::uint64_t count, std::vector<BlockRef>& blocks) {
  std::vector<wire::Block> table;
  if (!reader.read(table, count)) return false;
  blocks.reserve(count);
  auto descriptor = message.descriptors.begin();
  for (const wire::Block& entry : table) {
    FileDescriptor fd;
    if ((entry.handle & wire::kMark) == 0) {
      if (descriptor == message.descriptors.end()) return false;
      fd = std::move(*descriptor++);
      if (fd && !is_block(fd, entry.size)) return false;
    }
    blocks.push_back(
        std::make_shared<const SharedBlock>(std::move(fd), entry.size, message.owner, entry.handle & ~wire::kMark));
  }
  if (descriptor != message.descriptors.end()) return false;
  message.descriptors.clear();
  return true;
}

// `ends` tell the items' share of so many bytes.
bool cover(const std::vector<std::uint64_t>& ends, std::uint64_t size) {
  return std::is_sorted(ends.begin(), ends.end()) && (ends.empty() ? 0 : ends.back()) == size;
}

// Attaches blocks to a payload, `block` being the next one.
bool attach(Payload& payload, std::span<const std::uint32_t> items, std::vector<BlockRef>::iterator& block) {
  payload.blocks.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i] >= payload.items() || (i > 0 && items[i] < items[i - 1])) return false;
    payload.blocks.push_back({.item = items[i], .block = std::move(*block++)});
  }
  return true;
}

bool to_result(const wire::Result& from, ResultKind last_kind, std::vector<BlockRef>::iterator& block, Result& result) {
  if (from.kind > static_cast<std::uint8_t>(last_kind)) return false;
  result.kind = static_cast<ResultKind>(from.kind);
  const auto end = block + static_cast<std::ptrdiff_t>(from.blocks);
  result.blocks.assign(std::move_iterator(block), std::move_iterator(end));
  block = end;
  return true;
}

}  // namespace

bool parse(const InMessage& message, Hello& hello) {
  wire::Hello head{};
  Reader reader(message.body);
  if (message.type != MessageType::kHello || !reader.read(head) || !reader.at_end()) return false;
  if (head.role > static_cast<std::uint32_t>(Role::kClient)) return false;
  hello = {.version = head.version, .role = static_cast<Role>(head.role), .pid = head.pid};
  return true;
}

bool parse(const InMessage& message, std::vector<std::uint64_t>& ids) {
  Reader reader(message.body);
  return reader.read(ids, message.body.size() / sizeof(std::uint64_t)) && reader.at_end();
}

bool parse(InMessage& message, BatchMessage& batch) {
  wire::Batch head{};
  Reader reader(message.body);
  std::vector<wire::BatchPart> parts;
  std::vector<std::uint32_t> block_items;
  std::vector<BlockRef> blocks;
  batch = {};
  Payload& payload = batch.payload;
  if (message.type != MessageType::kBatch || !reader.read(head) || !reader.read(parts, head.parts) ||
      !reader.read(payload.ends, head.items) || !reader.read(block_items, head.blocks) ||
      !read_blocks(reader, message, head.blocks, blocks) || !cover(payload.ends, reader.left()) ||
      !reader.read(payload.bytes, reader.left())) {
    return false;
  }
  std::uint64_t items = 0;
  batch.parts.reserve(parts.size());
  for (const wire::BatchPart& part : parts) {
    items += part.items;
    BatchHead& to = batch.parts.emplace_back(BatchHead{.items = part.items, .whole = part.whole != 0});
    if (part.items == 0 || part.whole > 1 || !to_time(part.deadline, to.deadline)) return false;
  }
  auto block = blocks.begin();
  return items == head.items && attach(payload, block_items, block);
}

bool parse(InMessage& message, ReplyMessage& reply) {
  wire::Reply head{};
  Reader reader(message.body);
  std::vector<wire::Result> results;
  std::vector<BlockRef> blocks;
  reply = {};
  if (message.type != MessageType::kReply || !reader.read(head) || head.isolated > 1 || head.unread > 1 ||
      !to_duration(head.decode, reply.decode) || !to_duration(head.predict, reply.predict) ||
      !to_duration(head.encode, reply.encode) || !reader.read(results, head.results)) {
    return false;
  }
  reply.isolated = head.isolated != 0;
  reply.unread = head.unread != 0;
  std::uint64_t block_count = 0;
  for (const wire::Result& result : results) block_count += result.blocks;
  if (!read_blocks(reader, message, block_count, blocks)) return false;
  reply.results.reserve(results.size());
  auto block = blocks.begin();
  for (const wire::Result& from : results) {
    Result& result = reply.results.emplace_back();
    if (!to_result(from, ResultKind::kPostponed, block, result) || !reader.read(result.bytes, from.bytes)) return false;
  }
  return reader.at_end();
}

bool parse(InMessage& message, std::vector<SubmittedRequest>& requests) {
  wire::Submit head{};
  Reader reader(message.body);
  std::vector<wire::SubmitRequest> heads;
  std::vector<std::uint32_t> block_items;
  std::vector<BlockRef> blocks;
  requests.clear();
  if (message.type != MessageType::kSubmit || !reader.read(head) || !reader.read(heads, head.requests)) return false;
  std::uint64_t block_count = 0;
  requests.reserve(heads.size());
  for (const wire::SubmitRequest& from : heads) {
    block_count += from.blocks;
    SubmittedRequest& request = requests.emplace_back();
    request.head.id = from.id;
    request.head.priority = from.priority;
    if (from.items == 0 || !to_time(from.deadline, request.head.deadline)) return false;
    if (!reader.read(request.payload.ends, from.items) || !cover(request.payload.ends, from.bytes)) return false;
  }
  if (!reader.read(block_items, block_count) || !read_blocks(reader, message, block_count, blocks)) return false;
  auto block = blocks.begin();
  std::span<const std::uint32_t> items = block_items;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    Payload& payload = requests[i].payload;
    if (!attach(payload, items.first(heads[i].blocks), block)) return false;
    if (!reader.read(payload.bytes, heads[i].bytes)) return false;
    items = items.subspan(heads[i].blocks);
  }
  return reader.at_end();
}

bool parse(InMessage& message, std::vector<EndedCall>& calls) {
  wire::Results head{};
  Reader reader(message.body);
  std::vector<wire::ResultsCall> heads;
  std::vector<wire::ResultsPiece> pieces;
  std::vector<BlockRef> blocks;
  calls.clear();
  if (message.type != MessageType::kResults || !reader.read(head) || !reader.read(heads, head.calls)) return false;
  std::uint64_t piece_count = 0;
  for (const wire::ResultsCall& call : heads) piece_count += call.pieces;
  if (!reader.read(pieces, piece_count)) return false;
  std::uint64_t block_count = 0;
  for (const wire::ResultsPiece& piece : pieces) block_count += piece.result.blocks;
  if (!read_blocks(reader, message, block_count, blocks)) return false;

  calls.reserve(heads.size());
  for (const wire::ResultsCall& from : heads) {
    Bytes note;
    if (from.outcome > static_cast<std::uint8_t>(Outcome::kLost) || !reader.read(note, from.note)) return false;
    EndedCall& call = calls.emplace_back();
    call.id = from.id;
    call.outcome = static_cast<Outcome>(from.outcome);
    call.note = note.text();
  }
  auto piece = pieces.begin();
  auto block = blocks.begin();
  for (std::size_t i = 0; i < heads.size(); ++i) {
    calls[i].pieces.reserve(heads[i].pieces);
    for (std::uint32_t k = 0; k < heads[i].pieces; ++k, ++piece) {
      ResultPiece& to = calls[i].pieces.emplace_back();
      to.begin = piece->begin;
      to.count = piece->count;
      if (piece->count == 0 || piece->begin + std::uint64_t{piece->count} > UINT32_MAX) return false;
      if (!to_result(piece->result, ResultKind::kError, block, to.result) ||
          !reader.read(to.result.bytes, piece->result.bytes)) {
        return false;
      }
    }
  }
  return reader.at_end();
}

}  // namespace service_streamer::ipc
