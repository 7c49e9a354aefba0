#pragma once

#include <memory>
#include <string>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/engine.h"
#include "service_streamer/wire/query.h"

namespace service_streamer::ipc {

// The client process' side: one thread, which never takes the GIL, hands everything that this process' engine queues (LocalCalls)
// on to the Server at `address` and brings the answers. Deadlines are watched on both sides, so a Server that hangs holds up
// nobody. A request that is cancelled here, in whatever way, is cancelled there.
//
// The local engine is only a waiting room (make it greedy; its batch_size does not matter, its max_queue does): whole requests,
// any number in flight. It connects when there is something to send. When the connection breaks, what was handed on ends as kLost
// at once; it connects again with back-off (10 ms to 1 s), while new requests wait or reach their deadlines. What a Server that
// closes has not taken waits for the next one as well.
class ClientLink {
 public:
  // The engine must outlive it. Does nothing before start(). Throws std::system_error when no descriptor is left.
  // `owner_returns` false: there will be no other Server at the address, so what this one has not taken ends as
  // kClosed; and where it has gone already the engine is closed.
  ClientLink(Engine& engine, std::string address, bool owner_returns = true);
  ~ClientLink();  // stop()

  // `connect_now`: tries to connect before it returns, for a caller that has something to send; only where the owner may return.
  // Never blocks.
  void start(bool connect_now = false);
  // Ends the thread and the connection; blocks until it has ended. What was handed on ends as kClosed. Idempotent.
  void stop();

  // Why there was no Server at the address at the last attempt to connect, in words; empty: there was one, or no attempt. Any
  // thread.
  std::string absence() const;

  // What the Server says, asked and waited for. Block; kTimeout: no connection, or not in time; kInterrupted: a signal handler
  // ran in this thread (ask again). Any thread.

  // For a request that the local engine says is running. Yes: it was queued there, and has ended here as kCancelled.
  Completion::Wait cancel(Request& request, QueryReply& reply, Waiter& waiter, TimePoint deadline);
  // Yes: a worker has some of it.
  Completion::Wait running(const Request& request, QueryReply& reply, Waiter& waiter, TimePoint deadline);
  // The text is Server::stats().
  Completion::Wait stats(QueryReply& reply, Waiter& waiter, TimePoint deadline);
  // No: the text says why not. Throws std::invalid_argument.
  Completion::Wait configure(const EngineChange& change, QueryReply& reply, Waiter& waiter, TimePoint deadline);
  // Until a worker can answer, and through broken connections. No: the text is the note of Server::set_failure().
  Completion::Wait wait_ready(QueryReply& reply, Waiter& waiter, TimePoint deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace service_streamer::ipc
