#pragma once

#include <memory>
#include <string>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/engine.h"
#include "service_streamer/wire/query.h"

namespace service_streamer::ipc {

struct ClientLinkOptions {
  // False: when the Server is gone, no other will listen at the address. Requests that it did not accept then end as
  // kClosed, and a failed attempt to connect closes the engine.
  bool owner_returns = true;
  // Until a Server has said hello for the first time, requests that have waited this long end as kExpired.
  Duration first_patience = Duration::max();
};

// Forwards the requests of a client process to the Server at `address`. One thread, `streamer-client`, takes the
// requests (LocalCalls) out of this process's engine, sends them, and ends them with the results that come back. It
// never takes the GIL.
//
// The local engine is only a waiting room. It should be greedy; its batch_size does not matter, its max_queue does. Any
// number of requests may be in flight. Both processes watch the deadlines, so a Server that hangs does not block a
// caller beyond its deadline. A request that is cancelled here is also cancelled there.
//
// The thread connects when there is something to send. When the connection breaks, forwarded requests end as kLost. The
// thread connects again, with back-off, and new requests wait until then or until their deadlines. Requests that a
// closing Server did not accept wait for the next Server too.
//
// Any thread may call the methods. A forked child must not use its parent's ClientLink; its destructor does nothing
// there.
class ClientLink {
 public:
  // The engine must outlive the ClientLink. The constructor throws std::system_error if no descriptor is left.
  ClientLink(Engine& engine, std::string address, const ClientLinkOptions& options = {});
  ~ClientLink();  // stop()

  // Starts the thread. Never blocks. `connect_now`: tries once to connect before it returns; ignored if the owner does
  // not return. If the address is another user's, it throws std::system_error with EACCES, and starts nothing.
  void start(bool connect_now = false);
  // Ends the thread and the connection. Forwarded requests end as kClosed; queued requests stay. Blocks until the
  // thread has ended. Idempotent.
  void stop();

  // Returns why the last attempt to connect failed; empty: it did not fail, or there was none.
  std::string connect_error() const;

  // Queries to the Server. They block until the reply. kTimeout: there is no connection, or the deadline has passed.
  // kInterrupted: a signal handler ran in this thread; call again. The queries about recordings never return it.

  // For a request that is running for the local engine. Yes: the request has ended here as kCancelled.
  Completion::Wait cancel(Request& request, QueryReply& reply, Waiter& waiter, TimePoint deadline);
  // Yes: a worker has a part of the request.
  Completion::Wait running(const Request& request, QueryReply& reply, Waiter& waiter, TimePoint deadline);
  // The text of the reply is Server::stats().
  Completion::Wait stats(QueryReply& reply, Waiter& waiter, TimePoint deadline);
  // No: the text says why not. Throws std::invalid_argument if `change` is invalid by itself.
  Completion::Wait configure(const EngineChange& change, QueryReply& reply, Waiter& waiter, TimePoint deadline);
  // Waits until a worker is ready, and across broken connections. No: no worker will come; the text is the note of
  // Server::set_failure().
  Completion::Wait wait_ready(QueryReply& reply, Waiter& waiter, TimePoint deadline);

  // Starts a recording in the engine of the Server. No: that has one already.
  struct Recording {
    Duration limit{0};
    std::uint64_t max_events = 0;
  };
  Completion::Wait start_recording(const Recording& recording, QueryReply& reply, Waiter& waiter, TimePoint deadline);
  // The text of the reply is EventLog::finish(). No: there is no recording of this client.
  Completion::Wait finish_recording(QueryReply& reply, Waiter& waiter, TimePoint deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace service_streamer::ipc
