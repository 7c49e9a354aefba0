#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "service_streamer/base/bytes.h"
#include "service_streamer/base/clock.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/wire/payload.h"
#include "service_streamer/wire/query.h"

// What travels between the engine's process, its workers and its clients, as bytes. All of one machine: native byte order,
// times of CLOCK_MONOTONIC in nanoseconds. Whatever a peer sends is checked before it is believed: every parse() looks at
// bounds, counts and enums, and returns false for what cannot be; it never throws for bad input and never allocates more than
// in proportion to the bytes that really came.

namespace service_streamer::ipc {

constexpr std::uint32_t kProtocolVersion = 2;

enum class MessageType : std::uint16_t {
  kHello = 1,   // first of both sides: version, role, pid
  kSetup,       // engine → worker: opaque, what it needs to load its model
  kReady,       // worker → engine: opaque text about itself (JSON), after its model is loaded and warm
  kInitFailed,  // worker → engine: text, the traceback; it ends then
  kBatch,       // engine → worker
  kReply,       // worker → engine: to the batch of the same id
  kReleased,    // both ways: handles of blocks that nobody there refers to any more
  kSubmit,      // client → engine
  kCancel,      // client → engine: ids of requests whose answer nobody wants
  kQuery,       // client → engine: a question about a request (cancel it if it is queued; does it run?) or the engine
  kQueryReply,  // engine → client: its answer, of the same id
  kResults,     // engine → client: requests that ended
  kClosed,      // engine → client, its last: what it has not told the end of by now it did not take
};

struct FrameHeader {
  std::uint32_t magic;
  MessageType type = MessageType::kHello;
  std::uint16_t reserved;
  std::uint32_t descriptors;  // that come with it
  std::uint32_t reserved2;
  std::uint64_t body;  // bytes that follow
  std::uint64_t id;
};

// Bounds that no honest peer crosses.
constexpr std::uint64_t kMaxBody = std::uint64_t{1} << 40;
constexpr std::uint32_t kMaxDescriptors = 1 << 16;  // a message with more blocks goes without

// On its way out: a head made by the functions below, then slices that are not copied.
struct OutMessage {
  MessageType type = MessageType::kHello;
  std::uint64_t id = 0;
  std::string head;
  std::vector<Bytes> tail;
  std::vector<BlockRef> blocks;  // lent to the peer until it sends kReleased; `head` has a table of their handles
};

// Received in full; nothing in it is checked yet but the header.
struct InMessage {
  MessageType type = MessageType::kHello;
  std::uint64_t id = 0;
  Bytes body;
  std::uint64_t unread = 0;                 // bytes of a body for which there was no memory: it is empty then
  std::vector<FileDescriptor> descriptors;  // none: lost on the way, for this process had too many open
  std::shared_ptr<BlockOwner> owner;        // the connection, for the blocks in it
};

enum class Role : std::uint32_t { kEngine, kWorker, kClient };

struct Hello {
  std::uint32_t version = kProtocolVersion;
  Role role = Role::kEngine;
  std::int32_t pid = 0;
};

// --- engine and worker ---

struct BatchHead {
  std::uint32_t items = 0;  // of one request
  TimePoint deadline = TimePoint::max();
  bool whole = false;  // these are all items of the request
};

struct BatchMessage {
  std::vector<BatchHead> parts;  // in the order of the items
  Payload payload;
  std::uint64_t unread = 0;  // bytes of it for which there was no memory: it has nothing else then
};

struct ReplyMessage {
  bool isolated = false;  // the batch raised and was run again in parts
  bool unread = false;    // there was no memory for the batch: the one result is an error, for all of it
  Duration decode{0};
  Duration predict{0};
  Duration encode{0};
  std::vector<Result> results;  // one for each part
};

// --- engine and client ---

struct SubmitHead {
  std::uint64_t id = 0;
  std::int32_t priority = 0;
  TimePoint deadline = TimePoint::max();
};

struct SubmittedRequest {
  SubmitHead head;
  Payload payload;
};

struct ResultRange {
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
  Result result;
};

struct EndedCall {
  std::uint64_t id = 0;
  Outcome outcome = Outcome::kNone;  // kNone: the engine is closed and did not take it, nor will it take others
  std::string note;                  // what there is to say of a loss
  std::vector<ResultRange> pieces;
};

// --- out ---

OutMessage make_hello(Role role);
OutMessage make_text(MessageType type, std::string_view text, std::uint64_t id = 0);  // kReady, kInitFailed, kClosed
OutMessage make_opaque(MessageType type, std::uint64_t id, const Bytes& bytes);       // kSetup
OutMessage make_batch(std::uint64_t id, std::span<const BatchHead> parts, std::span<const PayloadRange> items);
OutMessage make_reply(std::uint64_t id, const ReplyMessage& reply);
OutMessage make_ids(MessageType type, std::span<const std::uint64_t> ids);  // kReleased, kCancel
OutMessage make_submit(std::span<const SubmitHead> heads, std::span<const Payload* const> payloads);
OutMessage make_results(std::span<const EndedCall> calls);
OutMessage make_ask(std::uint64_t id, const Query& query);
OutMessage make_told(std::uint64_t id, const QueryReply& reply);

// --- in ---
// Blocks that came along become BlockRefs that tell `message.owner` when they go. Texts and opaque bytes are just the body.

bool parse(const InMessage& message, Hello& hello);
bool parse(InMessage& message, BatchMessage& batch);
bool parse(InMessage& message, ReplyMessage& reply);
bool parse(const InMessage& message, std::vector<std::uint64_t>& ids);
bool parse(InMessage& message, std::vector<SubmittedRequest>& requests);
bool parse(InMessage& message, std::vector<EndedCall>& calls);
bool parse(const InMessage& message, Query& query);
bool parse(const InMessage& message, QueryReply& reply);

}  // namespace service_streamer::ipc
