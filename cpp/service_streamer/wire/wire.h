#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "service_streamer/base/bytes.h"
#include "service_streamer/wire/payload.h"

// The fixed parts of messages as they lie in a body, one after the other, unaligned and without padding, and how they are
// written and read. Every body is: its fixed parts, a table of blocks if it may have any, and then all the opaque bytes.

namespace service_streamer::ipc::wire {

struct [[gnu::packed]] Hello {
  std::uint32_t version;
  std::uint32_t role;
  std::int32_t pid;
};

// kBatch: one, parts, item ends, item of each block, blocks, bytes
struct [[gnu::packed]] Batch {
  std::uint32_t parts;
  std::uint32_t items;
  std::uint32_t blocks;
};
struct [[gnu::packed]] BatchPart {
  std::int64_t deadline;
  std::uint32_t items;
  std::uint8_t whole;
};

// kReply: one, results, blocks of all of them, bytes
struct [[gnu::packed]] Reply {
  std::uint8_t isolated;
  std::uint8_t unread;
  std::int64_t decode;
  std::int64_t predict;
  std::int64_t encode;
  std::uint32_t results;
};
struct [[gnu::packed]] Result {
  std::uint8_t kind;
  std::uint32_t blocks;
  std::uint64_t bytes;
};

// kSubmit: one, requests, item ends of all, item of each block, blocks, bytes
struct [[gnu::packed]] Submit {
  std::uint32_t requests;
};
struct [[gnu::packed]] SubmitRequest {
  std::uint64_t id;
  std::int64_t deadline;
  std::uint64_t bytes;
  std::int32_t priority;
  std::uint32_t items;
  std::uint32_t blocks;
};

// kResults: one, calls, pieces of all, blocks of all, notes of all, bytes of all
struct [[gnu::packed]] Results {
  std::uint32_t calls;
};
struct [[gnu::packed]] ResultsCall {
  std::uint64_t id;
  std::uint8_t outcome;
  std::uint32_t pieces;
  std::uint32_t note;
};
struct [[gnu::packed]] ResultsPiece {
  std::uint32_t begin;
  std::uint32_t count;
  Result result;
};

// An entry of the table of blocks. Handles are the sender's, which kReleased tells it; they are counted from 0, and stay below
// the mark that both may carry.
struct [[gnu::packed]] Block {
  std::uint64_t size;
  std::uint64_t handle;  // marked: its descriptor did not come along, for it was lost
};
// In kReleased it marks a block that must not be written again.
constexpr std::uint64_t kMark = std::uint64_t{1} << 63;

template <typename T>
void append(std::string& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Reads a body from its begin. What does not fit leaves it failed, and everything after that fails too.
class Reader {
 public:
  explicit Reader(const Bytes& body) : body_(body) {}

  template <typename T>
  bool read(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!fits(1, sizeof value)) return false;
    std::memcpy(&value, body_.data() + at_, sizeof value);
    at_ += sizeof value;
    return true;
  }

  // An array, without more memory than its bytes really take.
  template <typename T>
  bool read(std::vector<T>& values, std::uint64_t count) {
    if (!fits(count, sizeof(T))) return false;
    values.resize(count);
    if (count > 0) std::memcpy(values.data(), body_.data() + at_, count * sizeof(T));
    at_ += count * sizeof(T);
    return true;
  }

  bool read(Bytes& bytes, std::uint64_t size) {
    if (!fits(size, 1)) return false;
    bytes = body_.slice(at_, size);
    at_ += size;
    return true;
  }

  std::uint64_t left() const { return body_.size() - at_; }
  bool at_end() const { return !failed_ && left() == 0; }

 private:
  bool fits(std::uint64_t count, std::uint64_t size) {
    if (count > left() / size) failed_ = true;
    return !failed_;
  }

  const Bytes& body_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace service_streamer::ipc::wire
