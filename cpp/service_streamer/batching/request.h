#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_policy.h"
#include "service_streamer/batching/intrusive_list.h"
#include "service_streamer/waiting/waiter.h"

namespace service_streamer {

// How a request ended.
enum class Outcome : std::uint8_t {
  kNone,       // it has not ended
  kAnswered,   // every item has its output
  kFailed,     // the model raised an exception or returned an unusable result
  kExpired,    // its deadline passed
  kCancelled,  // the caller does not want the result any more
  kClosed,     // the engine was closed first
  kLost,       // its worker died
  kRefused,    // it could not be answered within the target of the engine
};

// The context of a request: its trace, and the reader of its stream. Opaque bytes, 1 to kMaxTraceContext of them.
// nullptr: none.
using TraceContext = std::shared_ptr<const std::string>;
constexpr std::size_t kMaxTraceContext = 1024;

constexpr double kMaxWeight = 1e15;

// In an engine with buckets, the low bits of a key are the number of the bucket.
constexpr std::uint64_t kBucketBits = 63;
constexpr std::size_t kMaxBuckets = kBucketBits + 1;

struct Tenant;

// What decides which items share a batch, and which go first. The index is that of the item. Constant.
struct ItemTraits {
  std::vector<std::uint64_t> keys;  // only items with equal keys share a batch; equal ones are neighbours. Empty: all 0
  std::vector<double> weights;      // from 0 to kMaxWeight. Empty: each is 1
  std::string tenant = {};          // of the request, at most kMaxTenant bytes. Empty: the common one
};
constexpr std::size_t kMaxTenant = 800;

constexpr std::int64_t kAnyPriority = std::numeric_limits<std::int64_t>::min();  // below that of any request

// One call of predict or submit: a node of the engine's queue, embedded in a future or a Call.
//
// The owner fills in the first group of members, submits the request, and keeps it in place until its last hold is
// dropped.
//
// A request ends once. The method of Engine that ends it returns it in an EndedRequests. The thread that called the
// method stores the result, publishes `completion`, and drops the engine's hold. A worker may still run a part of the
// request, so each batch has a hold too. The thread that drops the last hold tells the owner, and then no thread uses
// the request.
struct Request {
  // Set by the owner before submit.
  std::uint32_t size = 0;  // number of items, at least 1
  int priority = 0;        // a higher priority goes first
  TimePoint deadline = TimePoint::max();
  TimePoint sent = TimePoint::max();  // when another machine sent it, if one did
  bool watched = false;               // the owner itself ends the request when the deadline passes
  TraceContext context;
  std::shared_ptr<const ItemTraits> traits;  // nullptr: all keys are 0, each weight is 1, and there is no tenant

  std::string_view tenant() const { return traits == nullptr ? std::string_view() : traits->tenant; }
  bool has_keys_or_weights() const { return traits != nullptr && !(traits->keys.empty() && traits->weights.empty()); }
  double weight(std::uint32_t item) const {
    return traits == nullptr || traits->weights.empty() ? 1 : traits->weights[item];
  }
  double weight_of(std::uint32_t begin, std::uint32_t end) const {
    if (traits == nullptr || traits->weights.empty()) return end - begin;
    return std::accumulate(traits->weights.begin() + begin, traits->weights.begin() + end, 0.0);
  }
  std::uint64_t key(std::uint32_t item) const {
    return traits == nullptr || traits->keys.empty() ? 0 : traits->keys[item];
  }
  // The end of the items from `item` on that have its key.
  std::uint32_t end_of_run(std::uint32_t item) const {
    if (traits == nullptr || traits->keys.empty()) return size;
    const auto& keys = traits->keys;
    std::uint32_t end = item + 1;
    while (end < size && keys[end] == keys[item]) ++end;
    return end;
  }

  Completion completion;

  // Set by the engine when the request ends. Read by the thread that publishes it, and by any thread afterwards.
  Outcome outcome = Outcome::kNone;
  float retry_after = 0;  // seconds; also set if the engine refuses the request at once because of its target
  TimePoint arrived;
  TimePoint ended;

  // From when on the caller waits.
  TimePoint begun() const { return std::min(arrived, sent); }

  // Set by the engine when it cuts a batch with items of the request. Read after the end; `taken` also by the worker.
  TimePoint taken;                // the first cut; the queue time ends here
  std::uint32_t batch_items = 0;  // items of the last batch; 0: there was no batch
  CloseReason reason{};           // of the last batch

  // Returns true if this was the last hold.
  bool drop_hold() { return holds.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  std::atomic<std::uint32_t> holds{1};  // one until it is published, and one for each batch with a part of it

  double queued_weight = 0;  // of the items not in a batch, if the engine bounds it; set before the mutex is taken

  // Everything below is guarded by the mutex of the engine.
  enum class Phase : std::uint8_t { kNew, kWaiting, kQueued, kDispatched, kEnded };
  Phase phase = Phase::kNew;
  std::uint32_t dispatched = 0;  // items that were cut into batches
  std::uint32_t answered = 0;    // items whose batch is back
  std::uint32_t run_end = 0;     // while it is queued: the items up to here have the key of the next one
  bool alone = false;            // postponed: it runs alone, when no other request is queued
  Waiter* admission = nullptr;   // of the thread that waits until the request leaves the waiting room
  Tenant* account = nullptr;     // in the queue or in the waiting room: of the tenant that is charged
  Request* previous = nullptr;   // in the list of the queue or of the waiting room
  Request* next = nullptr;
  Request* previous_alike = nullptr;  // in the list of queued requests of its priority and tenant with the same key
  Request* next_alike = nullptr;
  Request* next_ended = nullptr;
  Request* previous_live = nullptr;  // in the list of all requests that have not ended
  Request* next_live = nullptr;
};

// A stack of requests that a method of Engine returns.
template <Request* Request::* Next>
struct RequestChain {
  Request* first = nullptr;
  std::size_t count = 0;

  void push(Request& request) {
    request.*Next = std::exchange(first, &request);
    ++count;
  }

  // Removes and returns the request pushed last; nullptr if there is none.
  Request* pop() {
    Request* request = first;
    if (request != nullptr) {
      first = std::exchange(request->*Next, nullptr);
      --count;
    }
    return request;
  }
};

// Requests that have just ended. The caller publishes them.
using EndedRequests = RequestChain<&Request::next_ended>;
// Requests that were published before and have no hold any more. The caller frees them.
using ReleasedRequests = RequestChain<&Request::next>;

using QueueList = IntrusiveList<Request, &Request::previous, &Request::next>;
using AlikeList = IntrusiveList<Request, &Request::previous_alike, &Request::next_alike>;
using LiveList = IntrusiveList<Request, &Request::previous_live, &Request::next_live>;

}  // namespace service_streamer
