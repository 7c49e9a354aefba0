#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
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

// The requests that an BrokerEgress has handed out, by their numbers: which of their items are out, and which are answered. Requests of
// more than `chunk_size` items are cut. Ends requests, gives them back to the engine and publishes them, but for the first
// two methods in any thread. Requests may outlive the BrokerEgress: from close() on, which it must call, nobody is known here.
//
// The engine's hold on a request (Engine::forward) keeps its call as long as it is in here.
class ForwardedRequests final : public Forwarder, public std::enable_shared_from_this<ForwardedRequests> {
 public:
  // Wakes `to_wake` when there is something to be withdrawn, or, once the engine is closed, when nothing is left.
  ForwardedRequests(Engine& engine, Waiter& to_wake, std::uint32_t chunk_size);

  // --- the thread that takes ---

  void add(const Batch& batch) EXCLUDES(mutex_);

  struct Taken {
    std::vector<Chunk> chunks;             // that were not out before
    std::vector<std::uint64_t> withdrawn;  // ended with items out that are not answered: each once
    std::size_t in_flight = 0;
  };
  // About so many items.
  void take(std::size_t limit, Taken& taken) EXCLUDES(mutex_);
  std::size_t items_to_take() const EXCLUDES(mutex_);

  // --- any thread ---

  struct Answer {
    std::uint64_t id = 0;
    std::uint32_t begin = 0;
    std::uint32_t items = 0;
    Bytes body;  // of a result
  };
  // Returns how many there were that somebody waited for: not unknown, not a duplicate, and of a range that is out. A request ends
  // when all its items are answered, or with the first answer that failed, was lost or is corrupt (then it is lost).
  std::size_t answer(std::span<const Answer> answers) EXCLUDES(mutex_);

  // Their callers know: these are not withdrawn.
  void lose(std::span<const std::uint64_t> ids, const std::string& note) EXCLUDES(mutex_);
  bool fail(std::uint64_t id, const Bytes& error) EXCLUDES(mutex_);  // false: it has ended already

  // What is out and not answered, once more.
  void unanswered(std::span<const std::uint64_t> ids, std::vector<Chunk>& chunks) const EXCLUDES(mutex_);

  std::size_t in_flight() const EXCLUDES(mutex_);

  // They end as kClosed, also those that are added later. Idempotent.
  void close() EXCLUDES(mutex_);

  void withdraw(std::uint64_t id, Outcome outcome) override EXCLUDES(mutex_);

 private:
  struct Flight {
    LocalCall* call = nullptr;
    std::shared_ptr<const Payload> payload;
    std::uint32_t out = 0;              // items
    std::uint32_t answered = 0;         // items
    std::vector<bool> chunks_answered;  // none where there is but one
  };
  using Flights = std::unordered_map<std::uint64_t, Flight>;

  // What is to be done once the mutex is released.
  struct Ends {
    std::vector<Engine::Returned> returned;
    bool wake = false;
  };

  std::uint32_t chunk_at(const Flight& flight, std::uint32_t begin) const;
  bool waits_for(const Flight& flight, const Answer& answer) const;
  static Chunk chunk_of(std::uint64_t id, const Flight& flight, std::uint32_t begin, std::uint32_t items);
  bool too_large(const Payload& payload) const;
  void take_answer(Flights::iterator found, const Answer& answer, bool sound, EndedCall& result, Ends& ends)
      REQUIRES(mutex_);
  void end(Flights::iterator found, Outcome outcome, Ends& ends) REQUIRES(mutex_);
  void erase(Flights::iterator found, Outcome outcome, Ends& ends) REQUIRES(mutex_);
  void carry_out(const Ends& ends) EXCLUDES(mutex_);

  // Constant after construction.
  Engine& engine_;
  Waiter& waiter_;
  const std::uint32_t chunk_size_;

  mutable Mutex mutex_;
  Flights flights_ GUARDED_BY(mutex_);
  std::deque<std::uint64_t> to_take_ GUARDED_BY(mutex_);  // may have ended
  std::size_t items_to_take_ GUARDED_BY(mutex_) = 0;
  std::vector<std::uint64_t> withdrawn_ GUARDED_BY(mutex_);
  std::uint64_t last_id_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace service_streamer::ipc
