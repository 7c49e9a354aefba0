#pragma once

// Requests and results as bytes, made and read as the broker's side would.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "service_streamer/broker/forwarded_requests.h"
#include "service_streamer/wire/broker_body.h"
#include "support/server.h"

namespace service_streamer::support {

using ipc::Bytes;
using ipc::EndedCall;
using ipc::HandedOut;
using ipc::Parcel;

inline std::string text_of(const Parcel& parcel) {
  std::string body(parcel.body_size(), '\0');
  parcel.write_body(body.data());
  return body;
}

inline std::string text_of(const EndedCall& result) {
  std::string body(ipc::body_size(result), '\0');
  ipc::write_body(result, body.data());
  return body;
}

inline Bytes body_of(const Parcel& parcel) {
  return Bytes::copy_of(text_of(parcel));
}

inline Bytes body_of(const EndedCall& result) {
  return Bytes::copy_of(text_of(result));
}

// A request of its own, with one parcel.
inline Bytes request_of(const std::vector<int>& items) {
  const auto count = static_cast<std::uint32_t>(items.size());
  return body_of(Parcel{.items = count, .payload = std::make_shared<const ipc::Payload>(payload_of(items))});
}

inline ipc::ResultPiece piece_of(std::uint32_t begin, std::uint32_t count, Bytes bytes,
                                 ipc::ResultKind kind = ipc::ResultKind::kOutputs) {
  return {.begin = begin, .count = count, .result = {.kind = kind, .bytes = std::move(bytes), .blocks = {}}};
}

// Of one that was asked the items of a parcel: each plus 1.
inline EndedCall answer_to(const Parcel& parcel) {
  ipc::Payload payload;
  EXPECT_TRUE(parse_request(body_of(parcel), payload));
  EndedCall result{.id = parcel.id, .outcome = Outcome::kAnswered, .note = {}, .pieces = {}};
  result.pieces.push_back(piece_of(0, parcel.items, outputs_of(numbers_of(payload.bytes)).bytes));
  return result;
}

inline EndedCall failure() {
  EndedCall result{.id = 0, .outcome = Outcome::kFailed, .note = {}, .pieces = {}};
  result.pieces.push_back(piece_of(0, 1, Bytes::copy_of("error"), ipc::ResultKind::kError));
  return result;
}

inline EndedCall loss(std::string note) {
  return {.id = 0, .outcome = Outcome::kLost, .note = std::move(note), .pieces = {}};
}

inline HandedOut::Answer with_body(const Parcel& parcel, Bytes body) {
  return {.id = parcel.id, .begin = parcel.begin, .items = parcel.items, .body = std::move(body)};
}

// Whether somebody waited for it.
inline bool give(HandedOut& to, const Parcel& parcel, const EndedCall& result) {
  const HandedOut::Answer answer = with_body(parcel, body_of(result));
  return to.answer({&answer, 1}) == 1;
}

inline bool answer(HandedOut& to, const Parcel& parcel) {
  return give(to, parcel, answer_to(parcel));
}

}  // namespace service_streamer::support
