#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "service_streamer/base/bytes.h"

// Functions and structs that write and read bytes: packed structs, arrays and texts, one after the other. Numbers are
// little-endian, unaligned and without padding. The structs below belong to messages between processes. The structs of
// a broker's messages are in broker_body.cc and broker_entries.h.
//
// Do not bind a reference to a field of a packed struct: the reference would be misaligned. Copy the field first.

namespace service_streamer::ipc::wire {

static_assert(std::endian::native == std::endian::little, "numbers are copied without conversion");

// The start of a kBatch, kReply, kSubmit or kResults. After it come the table of blocks, the values of the message
// type, and the opaque bytes of all payloads and results.
struct [[gnu::packed]] Start {
  std::uint32_t count;   // ranges, results, requests or calls
  std::uint32_t blocks;  // entries of the table
  std::uint64_t bytes;   // opaque bytes
};

// An entry of the table of blocks. The sender chooses the handle, and the receiver returns it in a kReleased. Handles
// are counted from 0 and are smaller than kHandleFlag.
struct [[gnu::packed]] Block {
  std::uint64_t size;
  std::uint64_t handle;
};
// A flag in a handle. In the table: the block comes without its descriptor. In a kReleased: the block must not be
// written again.
constexpr std::uint64_t kHandleFlag = std::uint64_t{1} << 63;

// Followed by the end of each item (u64) and the item index of each block (u32).
struct [[gnu::packed]] Payload {
  std::uint32_t items;
  std::uint32_t blocks;
};
struct [[gnu::packed]] Result {
  std::uint8_t kind;
  std::uint32_t blocks;
  std::uint64_t bytes;
};

// In a kBatch: one, then a head for each range, the trace contexts of all ranges, and one payload.
struct [[gnu::packed]] Batch {
  std::uint8_t reason;
  std::int64_t age;
};
struct [[gnu::packed]] RequestRange {
  std::int64_t deadline;
  std::uint32_t items;
  std::uint8_t whole;
  std::uint16_t context;  // size in bytes
  std::int64_t queue_time;
};
// In a kReply: one, then the results.
struct [[gnu::packed]] Reply {
  std::uint8_t isolated;
  std::uint8_t out_of_memory;
  std::uint32_t memory_failed;
  std::uint32_t memory_passed;
  std::int64_t decode;
  std::int64_t predict;
  std::int64_t encode;
};
// In a kSubmit: one for each request, followed by its trace context, its payload and its traits.
struct [[gnu::packed]] SubmitRequest {
  std::uint64_t id;
  std::int64_t deadline;
  std::int32_t priority;
  std::uint16_t context;  // size in bytes
  std::uint8_t traits;    // flags (traits.h)
};
// In a kResults: one for each call, followed by its note and its ranges, each with a result.
struct [[gnu::packed]] ResultsCall {
  std::uint64_t id;
  std::uint8_t outcome;
  std::uint32_t note;  // size in bytes
  std::uint32_t ranges;
};
struct [[gnu::packed]] ResultRange {
  std::uint32_t begin;
  std::uint32_t count;
};

struct [[gnu::packed]] Hello {
  std::uint32_t version;
  std::uint32_t role;
  std::int32_t pid;
};
struct [[gnu::packed]] Query {
  std::uint8_t kind;
  std::uint8_t given;  // which settings are present: flags below
  std::uint8_t policy;
  std::uint64_t request;
  std::uint64_t batch_size;
  std::int64_t max_latency;
  std::int64_t slo;
  std::int64_t limit;
  std::uint64_t max_events;
};
enum : std::uint8_t { kBatchSize = 1, kMaxLatency = 2, kPolicy = 4, kSlo = 8, kAllSettings = 15 };  // Query::given

// Appends to a string.
template <typename T>
void append(std::string& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Writes to memory that must be large enough, and advances `to`.
template <typename T>
void append(char*& to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(to, &value, sizeof value);
  to += sizeof value;
}

inline void append_text(char*& to, std::string_view text) {
  if (!text.empty()) std::memcpy(to, text.data(), text.size());
  to += text.size();
}

// Reads values from bytes, front to back. A read beyond the end returns false, and so does every later read.
class ByteReader {
 public:
  explicit ByteReader(Bytes bytes = {}) : bytes_(std::move(bytes)) {}
  explicit ByteReader(std::string_view text)
      : bytes_(nullptr, reinterpret_cast<const std::byte*>(text.data()), text.size()) {}

  template <typename T>
  bool read(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!fits(1, sizeof value)) return false;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return true;
  }

  // Reads an array. Allocates nothing if the bytes are too short for `count` elements.
  template <typename T>
  bool read(std::vector<T>& values, std::uint64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!fits(count, sizeof(T))) return false;
    values.resize(count);
    if (count > 0) std::memcpy(values.data(), bytes_.data() + at_, count * sizeof(T));
    at_ += count * sizeof(T);
    return true;
  }

  // Reads a slice. The slice does not own its memory if the reader was made from a string_view.
  bool read(Bytes& bytes, std::uint64_t size) {
    if (!fits(size, 1)) return false;
    bytes = bytes_.slice(at_, size);
    at_ += size;
    return true;
  }

  // Resizes `values` for elements that follow, each of which takes at least `size` bytes. False: the bytes are too
  // short.
  template <typename T>
  bool resize(std::vector<T>& values, std::uint64_t count, std::size_t size) {
    if (!fits(count, size)) return false;
    values.resize(count);
    return true;
  }

  std::uint64_t left() const { return bytes_.size() - at_; }
  bool at_end() const { return !failed_ && left() == 0; }

 private:
  bool fits(std::uint64_t count, std::uint64_t size) {
    if (count > left() / size) failed_ = true;
    return !failed_;
  }

  Bytes bytes_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

// Converts a number to an enum with the values 0 to `last`. False: the number is too large.
template <typename Enum>
bool to_enum(std::uint64_t value, Enum last, Enum& to) {
  to = static_cast<Enum>(value);
  return value <= static_cast<std::uint64_t>(last);
}

}  // namespace service_streamer::ipc::wire
