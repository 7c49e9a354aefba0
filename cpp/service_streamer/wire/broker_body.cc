#include "service_streamer/wire/broker_body.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "service_streamer/wire/wire.h"

namespace service_streamer::ipc {
namespace {

// Outcomes by their numbers in a body. Kinds have the numbers of ResultKind.
constexpr std::array kOutcomes{Outcome::kAnswered, Outcome::kFailed, Outcome::kLost};

// Followed by the note, the number of ranges (u32), and the ranges.
struct [[gnu::packed]] ResultHead {
  std::uint8_t outcome;
  std::uint32_t note;
};
// Followed by `size` bytes.
struct [[gnu::packed]] ResultRangeHead {
  std::uint32_t begin;
  std::uint32_t count;
  std::uint8_t kind;
  std::uint32_t size;
};

bool read_tail(wire::ByteReader& reader, std::uint32_t items, TraceContext& context, TraitsRef& traits) {
  std::uint16_t size = 0;
  Bytes bytes;
  std::uint8_t flags = 0;
  if (!reader.read(size) || size > kMaxTraceContext || !reader.read(bytes, size) || !reader.read(flags) ||
      (size == 0 && flags == 0) || !read_traits(reader, flags, items, traits)) {
    return false;
  }
  if (size > 0) context = std::make_shared<const std::string>(bytes.text());
  return true;
}

std::uint8_t number_of(Outcome outcome) {
  return static_cast<std::uint8_t>(std::ranges::find(kOutcomes, outcome) - kOutcomes.begin());
}

bool read_portable_range(wire::ByteReader& reader, ResultRange& range) {
  ResultRangeHead head{};
  if (!reader.read(head)) return false;
  range.begin = head.begin;
  range.count = head.count;
  return wire::to_enum(head.kind, ResultKind::kError, range.result.kind) && reader.read(range.result.bytes, head.size);
}

// Returns whether this is a valid result of `items` items.
bool fits(const EndedCall& result, std::uint32_t items) {
  if (result.outcome == Outcome::kLost) return result.ranges.empty();
  if (result.outcome == Outcome::kFailed) {
    return result.ranges.size() == 1 && result.ranges.front().result.kind == ResultKind::kError;
  }
  std::uint64_t covered = 0;
  for (const ResultRange& range : result.ranges) {
    if (range.begin != covered || range.count == 0 || range.result.kind == ResultKind::kError) return false;
    covered += range.count;
  }
  return covered == items;
}

}  // namespace

// --- requests ---

std::size_t Chunk::body_size() const {
  const std::size_t body = 4 * (std::size_t{1} + items) + item_bytes();
  if (context == nullptr && traits == nullptr) return body;
  return body + sizeof(std::uint16_t) + (context != nullptr ? context->size() : 0) + sizeof(std::uint8_t) +
         traits_size(traits, items);
}

void Chunk::write_body(char* body) const {
  const std::uint64_t first = payload->begin_of(begin);
  wire::append(body, items);
  for (std::size_t i = begin; i < std::size_t{begin} + items; ++i) {
    wire::append(body, static_cast<std::uint32_t>(payload->ends[i] - first));
  }
  wire::append_text(body, payload->bytes.text().substr(first, item_bytes()));
  if (context == nullptr && traits == nullptr) return;
  wire::append(body, static_cast<std::uint16_t>(context != nullptr ? context->size() : 0));
  if (context != nullptr) wire::append_text(body, *context);
  wire::append(body, traits_flags(traits));
  write_traits(traits, begin, items, body);
}

bool parse_request(const Bytes& body, Payload& payload, TraceContext& context, TraitsRef& traits) {
  wire::ByteReader reader(body);
  std::uint32_t count = 0;
  std::vector<std::uint32_t> ends;
  payload = {};
  context = {};
  traits = {};
  if (!reader.read(count) || count == 0 || !reader.read(ends, count) || !std::is_sorted(ends.begin(), ends.end())) {
    return false;
  }
  payload.ends.assign(ends.begin(), ends.end());
  if (!reader.read(payload.bytes, ends.back())) return false;
  return reader.at_end() || (read_tail(reader, count, context, traits) && reader.at_end());
}

// --- results ---

std::string encoding_error(const EndedCall& result) {
  std::uint64_t size = result.note.size();
  for (const ResultRange& range : result.ranges) {
    if (!range.result.blocks.empty())
      return "the result is in shared memory, which cannot be sent to another machine: make the worker with "
             "inline=True";
    size += sizeof(ResultRangeHead) + range.result.bytes.size();
  }
  if (size <= kMaxBodyBytes) return {};
  return "the outputs have " + std::to_string(size) + " bytes, more than a message can have (" +
         std::to_string(kMaxBodyBytes) + "): send fewer items at once";
}

std::size_t body_size(const EndedCall& result) {
  std::size_t size = sizeof(ResultHead) + result.note.size() + 4;
  for (const ResultRange& range : result.ranges) size += sizeof(ResultRangeHead) + range.result.bytes.size();
  return size;
}

void write_body(const EndedCall& result, char* body) {
  wire::append(
      body, ResultHead{.outcome = number_of(result.outcome), .note = static_cast<std::uint32_t>(result.note.size())});
  wire::append_text(body, result.note);
  wire::append(body, static_cast<std::uint32_t>(result.ranges.size()));
  for (const auto& [begin, count, output] : result.ranges) {
    wire::append(body, ResultRangeHead{.begin = begin,
                                       .count = count,
                                       .kind = static_cast<std::uint8_t>(output.kind),
                                       .size = static_cast<std::uint32_t>(output.bytes.size())});
    wire::append_text(body, output.bytes.text());
  }
}

bool reports_no_worker(std::string_view body) {
  return !body.empty() && static_cast<std::uint8_t>(body[0]) == number_of(Outcome::kLost) &&
         body.size() > sizeof(ResultHead) && body.substr(sizeof(ResultHead)).starts_with("init: ");
}

bool parse_result(const Bytes& body, std::uint32_t items, EndedCall& result) {
  wire::ByteReader reader(body);
  ResultHead head{};
  Bytes note;
  std::uint32_t ranges = 0;
  result = {};
  if (!reader.read(head) || head.outcome >= kOutcomes.size() || !reader.read(note, head.note) || !reader.read(ranges) ||
      !reader.resize(result.ranges, ranges, sizeof(ResultRangeHead))) {
    return false;
  }
  result.outcome = kOutcomes.at(head.outcome);
  result.note = note.text();
  const auto read = [&reader](ResultRange& range) { return read_portable_range(reader, range); };
  return std::ranges::all_of(result.ranges, read) && reader.at_end() && fits(result, items);
}

}  // namespace service_streamer::ipc
