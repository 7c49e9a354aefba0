#pragma once

// Requests and results as bytes, as the other end of a broker makes and parses them.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "service_streamer/broker/forwarded_requests.h"
#include "service_streamer/wire/broker_body.h"
#include "support/server.h"

namespace service_streamer::support {

using ipc::Bytes;
using ipc::Chunk;
using ipc::EndedCall;
using ipc::ForwardedRequests;

inline std::string text_of(const Chunk& chunk) {
  std::string body(chunk.body_size(), '\0');
  chunk.write_body(body.data());
  return body;
}

inline std::string text_of(const EndedCall& result) {
  std::string body(ipc::body_size(result), '\0');
  ipc::write_body(result, body.data());
  return body;
}

inline Bytes body_of(const Chunk& chunk) {
  return Bytes::copy_of(text_of(chunk));
}

inline Bytes body_of(const EndedCall& result) {
  return Bytes::copy_of(text_of(result));
}

// The body of a request with these items.
inline Bytes request_of(const std::vector<int>& items) {
  const auto count = static_cast<std::uint32_t>(items.size());
  return body_of(Chunk{.items = count, .payload = std::make_shared<const ipc::Payload>(payload_of(items))});
}

inline ipc::ResultRange range_of(std::uint32_t begin, std::uint32_t count, Bytes bytes,
                                 ipc::ResultKind kind = ipc::ResultKind::kOutputs) {
  return {.begin = begin, .count = count, .result = {.kind = kind, .bytes = std::move(bytes), .blocks = {}}};
}

// The result of a chunk: each item plus 1.
inline EndedCall answer_to(const Chunk& chunk) {
  ipc::Payload payload;
  TraceContext context;
  ipc::TraitsRef traits;
  EXPECT_TRUE(parse_request(body_of(chunk), payload, context, traits));
  EndedCall result{.id = chunk.id, .outcome = Outcome::kAnswered, .note = {}, .ranges = {}};
  result.ranges.push_back(range_of(0, chunk.items, outputs_of(numbers_of(payload.bytes)).bytes));
  return result;
}

inline EndedCall failure() {
  EndedCall result{.id = 0, .outcome = Outcome::kFailed, .note = {}, .ranges = {}};
  result.ranges.push_back(range_of(0, 1, Bytes::copy_of("error"), ipc::ResultKind::kError));
  return result;
}

inline EndedCall loss(std::string note) {
  return {.id = 0, .outcome = Outcome::kLost, .note = std::move(note), .ranges = {}};
}

inline ForwardedRequests::Answer with_body(const Chunk& chunk, Bytes body) {
  return {.id = chunk.id, .begin = chunk.begin, .items = chunk.items, .body = std::move(body)};
}

// Returns whether the answer was accepted.
inline bool give(ForwardedRequests& to, const Chunk& chunk, const EndedCall& result) {
  const ForwardedRequests::Answer answer = with_body(chunk, body_of(result));
  return to.answer({&answer, 1}) == 1;
}

inline bool answer(ForwardedRequests& to, const Chunk& chunk) {
  return give(to, chunk, answer_to(chunk));
}

}  // namespace service_streamer::support
