#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "service_streamer/base/mutex.h"
#include "service_streamer/batching/engine.h"
#include "service_streamer/calls/serialized_call.h"
#include "service_streamer/wire/broker_body.h"

namespace service_streamer::ipc {

// The requests that a BrokerEgress has forwarded, by number: which of their items have been taken, and which are
// answered. A request with more than `chunk_size` items is cut into chunks. When a request ends, it is given back to
// the engine and published.
//
// add() and take() are for the thread that calls BrokerEgress::take(). Any thread may call the other methods. No call
// blocks. A request may outlive the BrokerEgress, which must call close(); then every request has been given back.
//
// The engine keeps a forwarded request alive until it is given back, so no reference is counted here.
class ForwardedRequests final : public Forwarder, public std::enable_shared_from_this<ForwardedRequests> {
 public:
  // Wakes `to_wake` when there is a request to cancel, and when none is in flight after the engine was closed.
  ForwardedRequests(Engine& engine, Waiter& to_wake, std::uint32_t chunk_size);

  // --- the thread that calls BrokerEgress::take() ---

  // Adds the requests of a batch of Engine::forward().
  void add(const Batch& batch) EXCLUDES(mutex_);

  struct Taken {
    std::vector<Chunk> chunks;             // to be sent
    std::vector<std::uint64_t> cancelled;  // requests that ended with unanswered chunks; each is returned once
    std::size_t in_flight = 0;
  };
  // Takes chunks of requests of at least that priority, the highest first, until they have `limit` items; the last
  // chunk may exceed it.
  void take(std::size_t limit, std::int64_t least_priority, Taken& taken) EXCLUDES(mutex_);

  // What take() with these arguments could use in addition: requests of at least a priority.
  struct Wanted {
    std::size_t items = 0;
    std::int64_t least_priority = 0;
  };
  Wanted wanted(std::size_t limit, std::int64_t least_priority) const EXCLUDES(mutex_);

  // --- any thread ---

  struct Answer {
    std::uint64_t id = 0;
    std::uint32_t begin = 0;
    std::uint32_t items = 0;
    Bytes body;  // of a result (wire/broker_body.h)
  };
  // Adds results of chunks. Ignores answers that are unknown, duplicate, or for a chunk that was not taken; returns how
  // many were not ignored. A request ends when all its items are answered, or with the first answer that failed, was
  // lost, or is corrupt. A corrupt answer makes it lost.
  std::size_t answer(std::span<const Answer> answers) EXCLUDES(mutex_);

  // End requests as kLost or kFailed. These are not returned as cancelled, because the caller knows.
  void lose(std::span<const std::uint64_t> ids, const std::string& note) EXCLUDES(mutex_);
  bool fail(std::uint64_t id, const Bytes& error) EXCLUDES(mutex_);  // false: the request has ended already

  // Returns the chunks that were taken and are not answered, to be sent again.
  void unanswered(std::span<const std::uint64_t> ids, std::vector<Chunk>& chunks) const EXCLUDES(mutex_);

  std::size_t in_flight() const EXCLUDES(mutex_);

  // All requests, also those that are added later, end as kClosed. Idempotent.
  void close() EXCLUDES(mutex_);

  void cancel(std::uint64_t id, Outcome outcome) noexcept override EXCLUDES(mutex_);

 private:
  struct ForwardedRequest {
    LocalCall* call = nullptr;
    std::shared_ptr<const Payload> payload;
    std::uint32_t taken = 0;            // number of items
    std::uint32_t answered = 0;         // number of items
    std::vector<bool> chunks_answered;  // empty if the request is one chunk
  };
  using RequestMap = std::unordered_map<std::uint64_t, ForwardedRequest>;

  // The requests of one priority that are not taken wholly.
  struct Lane {
    std::deque<std::uint64_t> ids;  // a request may have ended
    std::size_t items = 0;          // to be taken
  };

  // Actions for after the mutex is released.
  struct Deferred {
    std::vector<Engine::Returned> returned;
    bool wake = false;
  };

  std::uint32_t chunk_at(const ForwardedRequest& forwarded, std::uint32_t begin) const;
  bool waits_for(const ForwardedRequest& forwarded, const Answer& answer) const;
  static Chunk chunk_of(std::uint64_t id, const ForwardedRequest& forwarded, std::uint32_t begin, std::uint32_t items);
  bool too_large(const Payload& payload) const;
  void take_answer(RequestMap::iterator found, const Answer& answer, bool valid, EndedCall& result, Deferred& deferred)
      REQUIRES(mutex_);
  void end(RequestMap::iterator found, Outcome outcome, Deferred& deferred) REQUIRES(mutex_);
  void erase(RequestMap::iterator found, Outcome outcome, Deferred& deferred) REQUIRES(mutex_);
  void run(const Deferred& deferred) EXCLUDES(mutex_);

  // Constant after construction.
  Engine& engine_;
  Waiter& waiter_;
  const std::uint32_t chunk_size_;

  mutable Mutex mutex_;
  RequestMap requests_ GUARDED_BY(mutex_);
  std::map<int, Lane, std::greater<>> to_take_ GUARDED_BY(mutex_);  // by priority
  std::vector<std::uint64_t> cancelled_ GUARDED_BY(mutex_);
  std::uint64_t last_id_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace service_streamer::ipc
