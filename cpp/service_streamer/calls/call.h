#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "service_streamer/batching/request.h"
#include "service_streamer/waiting/mailbox.h"

namespace service_streamer {

class Engine;

// A request that threads without the GIL end and publish: the node of the queue where its workers are not Python threads.
//
// Counted: the engine's holds (Request::holds) are together one reference, whoever wants the answer has another. So: made with
// one, ref() before submit, unref() again if the engine refused it.
class Call {
 public:
  // The request, and the way back from it.
  struct Node : Request {
    explicit Node(Call& whole) : call(whole) {}
    Call& call;
  };

  Node request{*this};

  static Call& of(Request& request) { return static_cast<Node&>(request).call; }

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void unref();

  // Wakes who waits for it, or sends it on its way. Any thread; the request has ended.
  virtual void publish(WakeChain& chain) = 0;

  // The last hold has gone: nobody works on it any more. What it was asked, and outputs that came too late, go even where the
  // answer is kept. Any thread.
  virtual void drop_inputs() = 0;

  // Whether there is something to read: of one that ended otherwise no output is kept.
  bool has_result() const { return request.outcome == Outcome::kAnswered || request.outcome == Outcome::kFailed; }

 protected:
  Call() = default;
  virtual ~Call() = default;

 private:
  std::atomic<std::uint32_t> references_{1};
};

// Who else wants to hear of the end of a call besides sleeping threads: event loops, done callbacks. Any thread, no lock.
class Observers {
 public:
  Observers() = default;
  ~Observers();
  Observers(const Observers&) = delete;
  Observers& operator=(const Observers&) = delete;

  // Has `message` posted to the mailbox when the call has ended; false: it has. The mailbox lives as long as that.
  bool add(std::shared_ptr<Mailbox> mailbox, void* message);

  // Posts to all, in order, once; after the completion was published, for who is refused by add() must see the end.
  void tell();

 private:
  struct Observer;
  static Observer* closed();

  std::atomic<Observer*> first_{nullptr};  // a stack; closed() once they were told
};

namespace calls {

// The last step of every request that is a Call, as bindings/publish.cc is for those of Python workers.
void publish(EndedRequests& ended);
void let_go(ReleasedRequests& released);

// Ends and publishes what is due. Returns when to be called again, as Engine::watch_deadlines() does.
TimePoint expire(Engine& engine, Waiter& waiter);

}  // namespace calls

}  // namespace service_streamer
