#include "service_streamer/wire/broker_body.h"

#include <array>
#include <cstring>

namespace service_streamer::ipc {
namespace {

constexpr std::array kOutcomes{Outcome::kAnswered, Outcome::kFailed, Outcome::kLost};  // by their numbers in a body
constexpr std::array kKinds{ResultKind::kOutputs, ResultKind::kRows, ResultKind::kError};

constexpr std::size_t kPieceHead = 4 + 4 + 1 + 4;

// The number of `value`, which is among them.
template <typename T, std::size_t N>
std::uint8_t number_of(const std::array<T, N>& values, T value) {
  std::uint8_t number = 0;
  while (values[number] != value) ++number;
  return number;
}

class ParcelWriter {
 public:
  explicit ParcelWriter(char* at) : at_(at) {}

  void u8(std::uint8_t value) { *at_++ = static_cast<char>(value); }
  void u32(std::uint64_t value) {
    for (int shift = 0; shift < 32; shift += 8) u8(static_cast<std::uint8_t>(value >> shift));
  }
  void bytes(const void* data, std::size_t size) {
    if (size > 0) std::memcpy(at_, data, size);
    at_ += size;
  }

 private:
  char* at_;
};

// What does not fit leaves it where it is, and is false.
class ParcelReader {
 public:
  explicit ParcelReader(const Bytes& body) : body_(body) {}

  bool u8(std::uint8_t& value) {
    if (left() < 1) return false;
    value = std::to_integer<std::uint8_t>(body_.data()[at_++]);
    return true;
  }
  bool u32(std::uint32_t& value) {
    if (left() < 4) return false;
    value = 0;
    for (int shift = 0; shift < 32; shift += 8) value |= std::to_integer<std::uint32_t>(body_.data()[at_++]) << shift;
    return true;
  }
  bool bytes(std::uint64_t size, Bytes& bytes) {
    if (left() < size) return false;
    bytes = body_.slice(at_, size);
    at_ += size;
    return true;
  }
  template <typename T, std::size_t N>
  bool one_of(const std::array<T, N>& values, T& value) {
    std::uint8_t number = 0;
    if (!u8(number) || number >= N) return false;
    value = values[number];
    return true;
  }
  std::uint64_t left() const { return body_.size() - at_; }

 private:
  const Bytes& body_;
  std::size_t at_ = 0;
};

bool read_piece(ParcelReader& reader, ResultPiece& piece) {
  std::uint32_t size = 0;
  return reader.u32(piece.begin) && reader.u32(piece.count) && reader.one_of(kKinds, piece.result.kind) &&
         reader.u32(size) && reader.bytes(size, piece.result.bytes);
}

// Whether that can be the result of so many items.
bool fits(const EndedCall& result, std::uint32_t items) {
  if (result.outcome == Outcome::kLost) return result.pieces.empty();
  if (result.outcome == Outcome::kFailed) {
    return result.pieces.size() == 1 && result.pieces.front().result.kind == ResultKind::kError;
  }
  std::uint64_t covered = 0;
  for (const ResultPiece& piece : result.pieces) {
    if (piece.begin != covered || piece.count == 0 || piece.result.kind == ResultKind::kError) return false;
    covered += piece.count;
  }
  return covered == items;
}

}  // namespace

// --- requests ---

std::size_t Parcel::body_size() const {
  return 4 * (std::size_t{1} + items) + item_bytes();
}

void Parcel::write_body(char* body) const {
  const std::uint64_t first = payload->begin_of(begin);
  ParcelWriter writer(body);
  writer.u32(items);
  for (std::uint32_t i = 0; i < items; ++i) writer.u32(payload->ends[begin + std::size_t{i}] - first);
  writer.bytes(payload->bytes.data() + first, item_bytes());
}

bool parse_request(const Bytes& body, Payload& payload) {
  ParcelReader reader(body);
  std::uint32_t count = 0;
  payload = {};
  if (!reader.u32(count) || count == 0 || reader.left() / 4 < count) return false;
  payload.ends.resize(count);
  std::uint32_t last = 0;
  for (std::uint64_t& to : payload.ends) {
    std::uint32_t end = 0;
    if (!reader.u32(end) || end < last) return false;
    to = last = end;
  }
  return reader.left() == last && reader.bytes(last, payload.bytes);
}

// --- results ---

std::string why_no_body(const EndedCall& result) {
  std::uint64_t size = result.note.size();
  for (const ResultPiece& piece : result.pieces) {
    if (!piece.result.blocks.empty()) return "its worker was not made for requests of other machines";
    size += kPieceHead + piece.result.bytes.size();
  }
  if (size <= kMaxParcel) return {};
  return "the outputs take " + std::to_string(size) + " bytes, more than one message can have (" +
         std::to_string(kMaxParcel) + "): send fewer items at once";
}

std::size_t body_size(const EndedCall& result) {
  std::size_t size = 1 + 4 + result.note.size() + 4;
  for (const ResultPiece& piece : result.pieces) size += kPieceHead + piece.result.bytes.size();
  return size;
}

void write_body(const EndedCall& result, char* body) {
  ParcelWriter writer(body);
  writer.u8(number_of(kOutcomes, result.outcome));
  writer.u32(result.note.size());
  writer.bytes(result.note.data(), result.note.size());
  writer.u32(result.pieces.size());
  for (const ResultPiece& piece : result.pieces) {
    writer.u32(piece.begin);
    writer.u32(piece.count);
    writer.u8(number_of(kKinds, piece.result.kind));
    writer.u32(piece.result.bytes.size());
    writer.bytes(piece.result.bytes.data(), piece.result.bytes.size());
  }
}

bool says_nobody_is_there(std::string_view body) {
  constexpr std::size_t kNote = 1 + 4;
  return body.size() > kNote && static_cast<std::uint8_t>(body[0]) == number_of(kOutcomes, Outcome::kLost) &&
         body.substr(kNote).starts_with("init: ");
}

bool parse_result(const Bytes& body, std::uint32_t items, EndedCall& result) {
  ParcelReader reader(body);
  std::uint32_t note_size = 0;
  std::uint32_t pieces = 0;
  Bytes note;
  result = {};
  if (!reader.one_of(kOutcomes, result.outcome) || !reader.u32(note_size) || !reader.bytes(note_size, note) ||
      !reader.u32(pieces) || reader.left() / kPieceHead < pieces) {
    return false;
  }
  result.note = note.text();
  result.pieces.resize(pieces);
  for (ResultPiece& piece : result.pieces) {
    if (!read_piece(reader, piece)) return false;
  }
  return reader.left() == 0 && fits(result, items);
}

}  // namespace service_streamer::ipc
