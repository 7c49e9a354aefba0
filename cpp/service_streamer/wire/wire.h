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

// How everything that leaves the process is written and read: packed structs, arrays and texts, one after the other.
// Numbers are little-endian, unaligned and without padding. The structs below are those of messages between processes;
// broker_body.cc and broker_entries.h have those of a broker's messages. Copy a field of a packed struct before binding it to
// a reference: the reference would be misaligned.

namespace service_streamer::ipc::wire {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

// The start of a kBatch, kReply, kSubmit or kResults. The table of blocks follows, then the values that each type has,
// and last the opaque bytes of all payloads and results.
struct [[gnu::packed]] Start {
  std::uint32_t count;   // of parts, results, requests or calls
  std::uint32_t blocks;  // entries of the table
  std::uint64_t bytes;   // opaque bytes
};

// An entry of the table. Handles are the sender's, which a kReleased returns. They are counted from 0, and stay below
// kMark.
struct [[gnu::packed]] Block {
  std::uint64_t size;
  std::uint64_t handle;
};
// Of a handle in the table: the descriptor is lost and not sent. Of a handle in a kReleased: the block must not be
// written again.
constexpr std::uint64_t kMark = std::uint64_t{1} << 63;

// The end of each item (u64) and the item of each block (u32) follow.
struct [[gnu::packed]] Payload {
  std::uint32_t items;
  std::uint32_t blocks;
};
struct [[gnu::packed]] Result {
  std::uint8_t kind;
  std::uint32_t blocks;
  std::uint64_t bytes;
};

// kBatch: each part, and one payload.
struct [[gnu::packed]] RequestRange {
  std::int64_t deadline;
  std::uint32_t items;
  std::uint8_t whole;
};
// kReply: one of it, and each result.
struct [[gnu::packed]] Reply {
  std::uint8_t isolated;
  std::uint8_t unread;
  std::int64_t decode;
  std::int64_t predict;
  std::int64_t encode;
};
// kSubmit: each request with its payload.
struct [[gnu::packed]] SubmitRequest {
  std::uint64_t id;
  std::int64_t deadline;
  std::int32_t priority;
};
// kResults: each call with its note, and its pieces with their results.
struct [[gnu::packed]] ResultsCall {
  std::uint64_t id;
  std::uint8_t outcome;
  std::uint32_t note;  // bytes
  std::uint32_t pieces;
};
struct [[gnu::packed]] ResultsPiece {
  std::uint32_t begin;
  std::uint32_t count;
};

struct [[gnu::packed]] Hello {
  std::uint32_t version;
  std::uint32_t role;
  std::int32_t pid;
};
struct [[gnu::packed]] Query {
  std::uint8_t question;
  std::uint8_t given;  // which of the settings
  std::uint8_t policy;
  std::uint64_t request;
  std::uint64_t batch_size;
  std::int64_t max_latency;
};
enum : std::uint8_t { kBatchSize = 1, kMaxLatency = 2, kPolicy = 4, kAllSettings = 7 };  // Query::given

// Writes to a string.
template <typename T>
void append(std::string& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Writes to memory that is large enough, and moves `to` behind what was written.
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

// Reads bytes from their begin. What does not fit leaves it failed, and everything after that fails too.
class Reader {
 public:
  explicit Reader(Bytes bytes = {}) : bytes_(std::move(bytes)) {}
  explicit Reader(std::string_view text)
      : bytes_(nullptr, reinterpret_cast<const std::byte*>(text.data()), text.size()) {}

  template <typename T>
  bool read(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!fits(1, sizeof value)) return false;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return true;
  }

  // An array, without more memory than its bytes really take.
  template <typename T>
  bool read(std::vector<T>& values, std::uint64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!fits(count, sizeof(T))) return false;
    values.resize(count);
    if (count > 0) std::memcpy(values.data(), bytes_.data() + at_, count * sizeof(T));
    at_ += count * sizeof(T);
    return true;
  }

  // A slice. It owns nothing if the reader was made of a text.
  bool read(Bytes& bytes, std::uint64_t size) {
    if (!fits(size, 1)) return false;
    bytes = bytes_.slice(at_, size);
    at_ += size;
    return true;
  }

  // Makes room for `count` elements, each of which takes at least `size` bytes here.
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

// False: there is no such enumerator; `last` is the largest, and 0 the smallest.
template <typename Enum>
bool to_enum(std::uint64_t value, Enum last, Enum& to) {
  to = static_cast<Enum>(value);
  return value <= static_cast<std::uint64_t>(last);
}

}  // namespace service_streamer::ipc::wire
