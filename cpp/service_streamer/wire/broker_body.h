#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "service_streamer/base/bytes.h"
#include "service_streamer/base/clock.h"
#include "service_streamer/wire/message.h"
#include "service_streamer/wire/payload.h"

// Requests and their results as bytes that may travel to any machine: little-endian, without padding, and without shared memory.
//
//   request   u32 count, u32 end of each item, the items' bytes
//   result    u8 outcome (0 answered, 1 failed, 2 lost), u32 size of the note, the note, u32 pieces,
//             and per piece: u32 begin, u32 count, u8 kind (0 outputs, 1 rows, 2 error), u32 size, bytes
//
// The pieces of an answered request cover its items in order; a failed one has one piece, its error; a lost one a note. As
// with messages, whatever comes is checked before it is believed: every parse() looks at bounds, sums and enums, returns false for
// what cannot be, never throws for bad input and never allocates more than in proportion to the bytes that really came.

namespace service_streamer::ipc {

// What all items, or the outputs, of one body may have together: 32 bits of bytes.
constexpr std::uint64_t kMaxBodyBytes = UINT32_MAX;

// A range of the items of a request on its way out. Keeps what it needs of the request.
struct Chunk {
  std::uint64_t id = 0;
  std::uint32_t begin = 0;
  std::uint32_t items = 0;
  TimePoint deadline = TimePoint::max();
  int priority = 0;
  std::shared_ptr<const Payload> payload;  // of the whole request

  // The items' bytes, at most kMaxBodyBytes, and all of the body.
  std::uint64_t item_bytes() const { return payload->begin_of(begin + std::size_t{items}) - payload->begin_of(begin); }
  std::size_t body_size() const;
  void write_body(char* body) const;  // so many bytes
};

// Slices of `body` become the payload.
bool parse_request(const Bytes& body, Payload& payload);

// Of a request that ended as kAnswered, kFailed or kLost (its `id` is not in the body). A result that has no body, for it is too
// large or lies in shared memory, is to be replaced by a loss: the text says why, and is empty where it has one.
std::string why_no_body(const EndedCall& result);
std::size_t body_size(const EndedCall& result);
void write_body(const EndedCall& result, char* body);

// Whether a body of a result only says that no worker could load its model (`Call::note`).
bool says_nobody_is_there(std::string_view body);

// The result of so many items; slices of `body` become its pieces.
bool parse_result(const Bytes& body, std::uint32_t items, EndedCall& result);

}  // namespace service_streamer::ipc
