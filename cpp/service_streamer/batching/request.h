#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "service_streamer/base/clock.h"
#include "service_streamer/waiting/waiter.h"

namespace service_streamer {

// How a request ended.
enum class Outcome : std::uint8_t {
  kNone,       // it has not
  kAnswered,   // every item has its output
  kFailed,     // the model raised, or gave something unusable
  kExpired,    // its deadline passed
  kCancelled,  // nobody wants the answer any more
  kClosed,     // the engine closed first
  kLost,       // its batch was dropped by a worker that died
};

// One predict or submit call: a node of the engine's queue, embedded in whatever stands for the call outside.
//
// The owner fills in the first group, submits it, and keeps it in place until the engine released it. A request ends once:
// the call of the engine that ended it returns it in an EndedRequests, and the one who gets it stores the result, publishes
// `completion` and then drops its hold. A worker may still be at a part of it: each batch has a hold too. Whoever drops the
// last hold tells the owner to let go of it; nobody touches it after that.
struct Request {
  // Set by the owner before submit.
  std::uint32_t size = 0;  // items, at least 1
  int priority = 0;        // higher goes first
  TimePoint deadline = TimePoint::max();
  bool watched = false;  // the owner ends it itself when the deadline passes

  Completion completion;

  // Set by the engine; to be read by whoever got the request as ended, and by everybody once it is published.
  Outcome outcome = Outcome::kNone;
  TimePoint arrived;
  TimePoint ended;

  // True: that was the last hold.
  bool drop_hold() { return holds.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  std::atomic<std::uint32_t> holds{1};  // of whoever ends it, and of every batch with a part of it

  // Everything below belongs to the engine, under its mutex.
  enum class Phase : std::uint8_t { kNew, kWaiting, kQueued, kDispatched, kEnded };
  Phase phase = Phase::kNew;
  std::uint32_t dispatched = 0;  // items that were cut into batches
  std::uint32_t answered = 0;    // items that came back
  bool alone = false;            // it runs alone, when nothing else waits
  Waiter* admission = nullptr;   // who sleeps until there is room
  Request* previous = nullptr;   // in the queue or in the waiting room
  Request* next = nullptr;
  Request* next_ended = nullptr;
  Request* previous_live = nullptr;  // among all that have not ended
  Request* next_live = nullptr;
};

// Requests on their way out of the engine, last one first.
template <Request* Request::* Next>
struct RequestChain {
  Request* first = nullptr;
  std::size_t count = 0;

  void push(Request& request) {
    request.*Next = std::exchange(first, &request);
    ++count;
  }

  // The last one pushed, or nullptr.
  Request* pop() {
    Request* request = first;
    if (request != nullptr) {
      first = std::exchange(request->*Next, nullptr);
      --count;
    }
    return request;
  }
};

// Just ended, to be published by whoever gets them.
using EndedRequests = RequestChain<&Request::next_ended>;
// Published before, and now without any hold: to be let go of.
using ReleasedRequests = RequestChain<&Request::next>;

// An intrusive list of requests in order; no allocation. `Previous` and `Next` name the links it uses.
template <Request* Request::* Previous, Request* Request::* Next>
class RequestList {
 public:
  bool empty() const { return first_ == nullptr; }
  Request* first() const { return first_; }

  void push_back(Request& request) { insert(request, nullptr); }

  // Before another one; nullptr: at the end.
  void insert(Request& request, Request* before) {
    Request* after = before != nullptr ? before->*Previous : last_;
    request.*Previous = after;
    request.*Next = before;
    (after != nullptr ? after->*Next : first_) = &request;
    (before != nullptr ? before->*Previous : last_) = &request;
  }

  void erase(Request& request) {
    (request.*Previous != nullptr ? request.*Previous->*Next : first_) = request.*Next;
    (request.*Next != nullptr ? request.*Next->*Previous : last_) = request.*Previous;
    request.*Previous = request.*Next = nullptr;
  }

 private:
  Request* first_ = nullptr;
  Request* last_ = nullptr;
};

using QueueList = RequestList<&Request::previous, &Request::next>;
using LiveList = RequestList<&Request::previous_live, &Request::next_live>;

}  // namespace service_streamer
