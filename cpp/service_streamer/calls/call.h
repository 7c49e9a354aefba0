#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "service_streamer/batching/request.h"
#include "service_streamer/waiting/mailbox.h"

namespace service_streamer {

class Engine;

// A request that threads without the GIL may end and publish. It is what the engine queues if its workers are not
// Python threads.
//
// A Call is reference-counted. All holds of the engine (Request::holds) share one reference, and the owner of the
// future has another. A new Call has one reference. Call ref() before submit, and unref() if the engine refuses the
// request.
class Call {
 public:
  // The request as the engine sees it, with a link to its Call.
  struct Node : Request {
    explicit Node(Call& containing) : call(containing) {}
    Call& call;
  };

  Node request{*this};

  static Call& of(Request& request) { return static_cast<Node&>(request).call; }

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void unref();

  // Makes the end of the request known: to threads through the WakeQueue, to a client through its socket. Called
  // once, after the request has ended. Any thread.
  virtual void publish() noexcept = 0;

  // Frees the items, and outputs that came after the end. Called when the last hold is dropped, so no worker uses
  // them. A result that the future keeps is not freed. Any thread.
  virtual void drop_inputs() = 0;

  // True if the request ended with outputs or with an error of the model. Otherwise it has no result.
  bool has_result() const { return request.outcome == Outcome::kAnswered || request.outcome == Outcome::kFailed; }

 protected:
  Call() = default;
  virtual ~Call() = default;

 private:
  std::atomic<std::uint32_t> references_{1};
};

// The event loops and done callbacks that are notified of the end of a request. Any thread, without a lock.
class Observers {
 public:
  Observers() = default;
  ~Observers();
  Observers(const Observers&) = delete;
  Observers& operator=(const Observers&) = delete;

  // Posts `message` to the mailbox when the request has ended, and keeps the mailbox alive until then. Returns false if
  // the request has already ended. Throws std::bad_alloc.
  bool add(std::shared_ptr<Mailbox> mailbox, void* message);

  // Posts to all mailboxes, in the order of add(). Called once, after the completion was published: if add() returns
  // false, the completion must be done.
  void notify() noexcept;

  // True if none has been added.
  bool empty() const { return first_.load(std::memory_order_relaxed) == nullptr; }

 private:
  static Mailbox::Message* closed();

  std::atomic<Mailbox::Message*> first_{nullptr};  // a stack; closed() after notify()
};

namespace calls {

// The last steps of requests that are Calls. (bindings/futures/publish.cc has those of Python workers.) publish()
// makes their ends known, wakes threads by WakeQueue::wake(batons), and drops the engine's hold. let_go() drops the
// references of requests without holds. Any thread.
void publish(EndedRequests& ended, int batons = 1) noexcept;
void let_go(ReleasedRequests& released);

// Ends and publishes the requests whose deadline has passed. Returns when to call it again, as
// DeadlineTimer::watch() does.
TimePoint expire(Engine& engine, Waiter& waiter);

}  // namespace calls

}  // namespace service_streamer
