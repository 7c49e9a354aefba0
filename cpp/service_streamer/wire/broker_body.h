#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "service_streamer/base/bytes.h"
#include "service_streamer/base/clock.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/wire/message.h"
#include "service_streamer/wire/payload.h"

// Requests and their results as bytes for other machines: little-endian, without padding, and without shared memory.
//
//   request   u32 count, u32 end of each item, the items' bytes, the traits part
//   traits    nothing if the request has neither a context nor traits; otherwise:
//             u16 size of the context, the context, u8 flags of the traits, the traits (traits.h)
//   result    u8 outcome, u32 size of the note, the note, u32 number of ranges, the ranges
//   outcome   0 answered, 1 failed, 2 lost, 3 refused
//   range     u32 begin, u32 count, u8 kind (0 outputs, 1 rows, 2 error), u32 size, bytes
//
// The ranges of an answered request cover its items in order. A failed request has one range, its error. A lost or
// refused request has a note.
//
// Bytes from other machines are not trusted. Every parse function checks bounds, sums and enums, and returns false for
// invalid bytes. It does not throw for invalid input, and allocates memory only in proportion to the bytes that were
// received.

namespace service_streamer::ipc {

// The largest size of all items, or of all outputs, of one body: sizes have 32 bits.
constexpr std::uint64_t kMaxBodyBytes = UINT32_MAX;

// A range of the items of a request, to be sent. It shares the payload, so it stays valid when the request ends.
struct Chunk {
  std::uint64_t id = 0;
  std::uint32_t begin = 0;
  std::uint32_t items = 0;
  TimePoint deadline = TimePoint::max();
  int priority = 0;
  std::shared_ptr<const Payload> payload;  // of the whole request
  TraceContext context = nullptr;
  TraitsRef traits = nullptr;  // of the whole request

  // The size of the items, at most kMaxBodyBytes.
  std::uint64_t item_bytes() const { return payload->begin_of(begin + std::size_t{items}) - payload->begin_of(begin); }
  std::size_t body_size() const;
  void write_body(char* body) const;  // writes body_size() bytes
};

// The payload becomes slices of `body`.
bool parse_request(const Bytes& body, Payload& payload, TraceContext& context, TraitsRef& traits);

// For a request that ended as kAnswered, kFailed, kLost or kRefused. The body does not contain the `id`.
// encoding_error() returns why a result has no body (too large, or in shared memory); an empty text: it has one. Send a
// loss with that text instead.
std::string encoding_error(const EndedCall& result);
std::size_t body_size(const EndedCall& result);
void write_body(const EndedCall& result, char* body);

// Returns whether a result is only the loss of a request because no worker could load its model.
bool reports_no_worker(std::string_view body);

// Parses the result of `items` items. Its ranges become slices of `body`.
bool parse_result(const Bytes& body, std::uint32_t items, EndedCall& result);

}  // namespace service_streamer::ipc
