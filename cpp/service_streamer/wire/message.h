#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "service_streamer/base/bytes.h"
#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/isolation.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/wire/payload.h"
#include "service_streamer/wire/query.h"
#include "service_streamer/wire/traits.h"

// The messages between the engine's process, its workers and its clients. All of them run on one machine: byte order is
// native, and times are CLOCK_MONOTONIC in nanoseconds.
//
// A peer is not trusted. Every parse() checks bounds, counts and enums, and returns false for an invalid message. It
// does not throw for invalid input, and allocates memory only in proportion to the bytes that were received. All
// functions here may be called by any thread. They throw std::bad_alloc.

namespace service_streamer::ipc {

constexpr std::uint32_t kProtocolVersion = 6;

enum class MessageType : std::uint16_t {
  kHello = 1,   // both ways, first: version, role and pid
  kSetup,       // engine → worker: opaque bytes that the worker loads its model with
  kReady,       // worker → engine: the model is loaded and warm; a JSON text about the worker
  kInitFailed,  // worker → engine, last: the model could not be loaded; the traceback
  kBatch,       // engine → worker: a batch to run
  kReply,       // worker → engine: the results of the batch with the same id
  kReleased,    // both ways: handles of blocks that the sender of this message no longer uses
  kSubmit,      // client → engine: new requests
  kCancel,      // client → engine: ids of requests to cancel; engine → worker: of batches
  kQuery,       // client → engine: a query about a request or the engine (wire/query.h)
  kQueryReply,  // engine → client: the reply to the query with the same id
  kResults,     // engine → client: requests that have ended
  kClosed,      // engine → client, last: the engine has not accepted the requests whose end it has not reported
  kPlaces,      // engine → worker: how many batches it may work on at a time, as the id
  kPaused,      // worker → engine: how many of its batches are paused, as the id
};

struct FrameHeader {
  std::uint32_t magic;
  MessageType type = MessageType::kHello;
  std::uint16_t reserved;
  std::uint32_t descriptors;  // sent with this message
  std::uint32_t reserved2;
  std::uint64_t body;  // size in bytes
  std::uint64_t id;
};

// A message beyond these bounds is invalid.
constexpr std::uint64_t kMaxBody = std::uint64_t{1} << 40;
constexpr std::uint32_t kMaxDescriptors = 1 << 16;  // a message with more blocks is sent without descriptors

// A message to be sent: a head made by the functions below, then slices that are not copied.
struct OutMessage {
  MessageType type = MessageType::kHello;
  std::uint64_t id = 0;
  std::string head;
  std::vector<Bytes> tail;
  std::vector<BlockRef> blocks;  // lent to the peer until it sends kReleased; `head` has the table of their handles
};

// A message that was received in full. Only its header has been checked.
struct InMessage {
  MessageType type = MessageType::kHello;
  std::uint64_t id = 0;
  Bytes body;
  std::uint64_t dropped_bytes = 0;          // size of a body that was dropped for lack of memory; `body` is then empty
  std::vector<FileDescriptor> descriptors;  // an empty one was lost: this process has too many open
  std::shared_ptr<BlockOwner> owner;        // the connection that received it; owns the blocks
};

enum class Role : std::uint32_t { kEngine, kWorker, kClient };

struct Hello {
  std::uint32_t version = kProtocolVersion;
  Role role = Role::kEngine;
  std::int32_t pid = 0;
};

// --- engine and worker ---

// A range of the items of one request, in a batch.
struct RangeHead {
  std::uint32_t items = 0;
  TimePoint deadline = TimePoint::max();
  bool whole = false;  // the range has all items of its request
  TraceContext context = nullptr;
  Duration queue_time{0};  // of the request
};

// What the engine knows of a batch.
struct BatchHead {
  CloseReason reason = CloseReason::kIdle;
  Duration age{0};  // of its oldest request, when the batch was cut
};

struct BatchMessage {
  BatchHead head;
  std::vector<RangeHead> ranges;  // in the order of the items
  Payload payload;
  std::uint64_t dropped_bytes = 0;  // size of the batch if it was dropped for lack of memory; the rest is then empty
};

struct ReplyMessage {
  bool isolated = false;       // the model raised, and the batch was run again in parts
  bool out_of_memory = false;  // the worker dropped the batch for lack of memory; the one result is an error
  MemoryLesson memory;         // of these parts
  Duration decode{0};
  Duration predict{0};
  Duration encode{0};
  std::vector<Result> results;  // one for each range of the batch
};

// --- engine and client ---

struct SubmitHead {
  std::uint64_t id = 0;
  std::int32_t priority = 0;
  TimePoint deadline = TimePoint::max();
  TraceContext context = nullptr;
  TraitsRef traits = nullptr;
  TimePoint sent = TimePoint::max();  // Request::sent; only through a broker
};

struct SubmittedRequest {
  SubmitHead head;
  Payload payload;
};

// The result of a range of the items of a request.
struct ResultRange {
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
  Result result;
};

// How a request ended.
struct EndedCall {
  std::uint64_t id = 0;
  Outcome outcome = Outcome::kNone;  // kNone: the engine is closed and did not accept the request
  std::string note;                  // kLost: the reason; kRefused: retry_note()
  std::vector<ResultRange> ranges;
};

// Request::retry_after as the note of a refused request. An invalid note gives 0.
std::string retry_note(float seconds);
float retry_after(const std::string& note);

// --- making messages ---

OutMessage make_hello(Role role);
OutMessage make_text(MessageType type, std::string_view text, std::uint64_t id = 0);  // kReady, kInitFailed, kClosed
OutMessage make_opaque(MessageType type, std::uint64_t id, const Bytes& bytes);       // kSetup
OutMessage make_batch(std::uint64_t id, const BatchHead& head, std::span<const RangeHead> ranges,
                      std::span<const PayloadRange> items);
OutMessage make_reply(std::uint64_t id, const ReplyMessage& reply);
OutMessage make_ids(MessageType type, std::span<const std::uint64_t> ids);  // kReleased, kCancel
OutMessage make_submit(std::span<const SubmitHead> heads, std::span<const Payload* const> payloads);
OutMessage make_results(std::span<const EndedCall> calls);
OutMessage make_query(std::uint64_t id, const Query& query);
OutMessage make_query_reply(std::uint64_t id, QueryReply reply);

// --- parsing messages ---
//
// The blocks of a message become BlockRefs; their release is reported to `message.owner`. Text and opaque messages are
// not parsed: their body is the text.

bool parse(const InMessage& message, Hello& hello);
bool parse(InMessage& message, BatchMessage& batch);
bool parse(InMessage& message, ReplyMessage& reply);
bool parse(const InMessage& message, std::vector<std::uint64_t>& ids);
bool parse(InMessage& message, std::vector<SubmittedRequest>& requests);
bool parse(InMessage& message, std::vector<EndedCall>& calls);
bool parse(const InMessage& message, Query& query);
bool parse(const InMessage& message, QueryReply& reply);

}  // namespace service_streamer::ipc
