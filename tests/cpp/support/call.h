#pragma once

// A request as the bindings make one, without Python. It has two owners: the engine, until the last
// hold is dropped, and the caller. The destructor checks that an accepted request was published and
// released exactly once, and a refused one never.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "service_streamer/batching/engine.h"

namespace service_streamer::support {

constexpr std::size_t kOutcomes = static_cast<std::size_t>(Outcome::kRefused) + 1;

// Counts how calls end. Thread-safe.
struct Tally {
  std::atomic<int> alive{0};
  std::array<std::atomic<std::uint64_t>, kOutcomes> ended{};

  std::uint64_t of(Outcome outcome) const { return ended[static_cast<std::size_t>(outcome)].load(); }
};

class Call : public Request {
 public:
  explicit Call(std::uint32_t items, Tally* counted_in = nullptr) : outputs(items), tally(counted_in) {
    size = items;
    if (tally != nullptr) ++tally->alive;
  }

  ~Call() {
    EXPECT_EQ(publications, accepted ? 1 : 0) << "a call must end exactly once";
    EXPECT_EQ(releases.load(), accepted ? 1 : 0) << "a call must be let go of exactly once";
    if (tally != nullptr) --tally->alive;
  }

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool done() const { return completion.done(); }
  bool released() const { return releases.load() == 1; }
  bool ended_as(Outcome expected) const { return done() && outcome == expected && publications == 1; }

  // Every item was computed once, and its output is at its place.
  bool answered() const {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] != static_cast<int>(i) + 1) return false;
    }
    return ended_as(Outcome::kAnswered);
  }

  std::vector<int> outputs;  // item i becomes i + 1
  bool accepted = false;
  int publications = 0;
  std::atomic<int> releases{0};
  std::shared_ptr<Call> kept;  // the engine's reference
  Tally* const tally;
};

using CallPtr = std::shared_ptr<Call>;

inline Call& call_of(Request& request) {
  return static_cast<Call&>(request);
}

struct Terms {
  int priority = 0;
  TimePoint deadline = TimePoint::max();
  bool watched = false;
  Tally* tally = nullptr;
  TraceContext context = nullptr;
};

inline TraceContext context_of(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

inline CallPtr make_call(std::uint32_t items, const Terms& terms = {}) {
  auto call = std::make_shared<Call>(items, terms.tally);
  call->priority = terms.priority;
  call->deadline = terms.deadline;
  call->watched = terms.watched;
  call->context = terms.context;
  return call;
}

inline Engine::Admission submit(Engine& engine, const CallPtr& call, bool admitted = false) {
  call->accepted = true;  // from here on a worker may end it
  call->kept = call;
  const Engine::Admission admission = admitted ? engine.submit_accepted(*call) : engine.submit(*call);
  if (admission != Engine::Admission::kQueued && admission != Engine::Admission::kWaiting) {
    call->accepted = false;
    call->kept.reset();
  }
  return admission;
}

// Submits a call that must be queued.
inline CallPtr submitted(Engine& engine, std::uint32_t items, const Terms& terms = {}) {
  CallPtr call = make_call(items, terms);
  EXPECT_EQ(submit(engine, call), Engine::Admission::kQueued);
  return call;
}

inline void let_go(Request& request) {
  Call& call = call_of(request);
  const CallPtr last_of_engine = std::move(call.kept);
  ++call.releases;
}

inline void let_go(ReleasedRequests& released) {
  while (Request* request = released.pop()) let_go(*request);
}

// As the bindings do: publish, wake, and only then drop the hold.
inline void publish(EndedRequests& ended) {
  if (ended.count == 0) return;
  WakeQueue& queue = WakeQueue::instance();
  EndedRequests in_order;
  while (Request* request = ended.pop()) {
    Call& call = call_of(*request);
    ++call.publications;
    if (call.tally != nullptr) ++call.tally->ended[static_cast<std::size_t>(request->outcome)];
    queue.publish(request->completion);
    in_order.push(*request);
  }
  queue.wake();
  while (Request* request = in_order.pop()) {
    if (request->drop_hold()) let_go(*request);
  }
}

// --- for callers ---

inline bool end_early(Engine& engine, Call& call, Outcome outcome, bool even_if_running) {
  EndedRequests ended;
  const bool was_ended = engine.end_early(call, outcome, even_if_running, ended);
  publish(ended);
  return was_ended;
}

inline bool cancel(Engine& engine, Call& call) {
  return end_early(engine, call, Outcome::kCancelled, false);
}
inline bool abandon(Engine& engine, Call& call) {
  return end_early(engine, call, Outcome::kCancelled, true);
}

inline void close(Engine& engine, bool drain) {
  EndedRequests ended;
  engine.close(drain, ended);
  publish(ended);
}

inline void abort(Engine& engine, Outcome outcome = Outcome::kClosed) {
  EndedRequests ended;
  engine.abort(outcome, ended);
  publish(ended);
}

inline void expire(Engine& engine) {
  EndedRequests ended;
  engine.deadline_timer().expire(ended);
  publish(ended);
}

// --- for workers ---

// Cuts the batch that poll() or wait_for_batch() reserved.
inline Batch cut(Engine& engine, CloseReason reason, const ItemWeights& live = {}) {
  Batch batch;
  EndedRequests expired;
  const bool any = engine.cut(batch, reason, expired, live);
  EXPECT_EQ(any, batch.items > 0);
  publish(expired);
  return batch;
}

// Returns the batch that a worker would get now, or an empty batch.
inline Batch take(Engine& engine, const ItemWeights& live = {}) {
  CloseReason reason{};
  return engine.poll(reason, live) == Engine::Ready::kBatch ? cut(engine, reason, live) : Batch{};
}

inline void give_back(Engine& engine, Batch& batch, Outcome outcome) {
  EndedRequests ended;
  ReleasedRequests released;
  engine.complete(batch, outcome, ended, released);
  publish(ended);
  let_go(released);
}

// Has some requests of a batch taken out of it. False: nothing is left, and the batch was given back.
inline bool without(Engine& engine, Batch& batch, void (Engine::*take_out)(Batch&, EndedRequests&, ReleasedRequests&)) {
  EndedRequests ended;
  ReleasedRequests released;
  (engine.*take_out)(batch, ended, released);
  std::erase_if(batch.ranges, [](const RequestRange& range) { return range.request == nullptr; });
  publish(ended);
  let_go(released);
  if (!batch.ranges.empty()) return true;
  give_back(engine, batch, Outcome::kAnswered);
  return false;
}

// To be called before a part of a batch runs again.
inline bool drop_ended(Engine& engine, Batch& batch) {
  return without(engine, batch, &Engine::drop_ended);
}

inline bool postpone(Engine& engine, Batch& batch) {
  return without(engine, batch, &Engine::postpone);
}

// Runs the model of these tests, and completes the batch.
inline void answer(Engine& engine, Batch& batch) {
  for (const RequestRange& range : batch.ranges) {
    for (std::uint32_t i = range.begin; i < range.begin + range.count; ++i) {
      call_of(*range.request).outputs.at(i) += static_cast<int>(i) + 1;
    }
  }
  give_back(engine, batch, Outcome::kAnswered);
}

// Answers everything that is queued.
inline void serve_all(Engine& engine) {
  for (Batch batch = take(engine); batch.items > 0; batch = take(engine)) answer(engine, batch);
}

}  // namespace service_streamer::support
