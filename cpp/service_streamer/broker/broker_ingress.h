#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/batching/engine.h"
#include "service_streamer/calls/client_call.h"
#include "service_streamer/server/server.h"
#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {

// The receiving end of a message broker: requests come as bytes into the engine of a Server, and their results leave as
// bytes. Any thread may submit requests. One thread calls take(), which returns every accepted request once, also if it
// was cancelled. A BrokerIngress has no thread; the Server's thread watches the deadlines.
//
// Construct and destroy it under the lock that guards WaiterPool, which is the GIL. A forked child must not use it; its
// destructor does nothing there.
class BrokerIngress {
 public:
  // Both must outlive the BrokerIngress. The engine must be the Server's.
  BrokerIngress(Engine& engine, Server& server);
  ~BrokerIngress();  // stop()
  BrokerIngress(const BrokerIngress&) = delete;
  BrokerIngress& operator=(const BrokerIngress&) = delete;

  // --- any thread ---

  enum class SubmitStatus { kAccepted, kMalformed, kUnknownTenant, kDuplicate, kClosed };
  struct Submission {
    SubmitHead head;
    Bytes body;  // the request keeps slices of it

    // Set by submit(). kDuplicate: a request with this id has not been taken yet.
    SubmitStatus submitted = SubmitStatus::kAccepted;
    std::uint32_t items = 0;
    std::string tenant = {};  // kUnknownTenant: which one
  };
  // Submits requests. Never blocks: if the queue is full, they wait in the waiting room. Workers are woken once, after
  // the last. Throws std::bad_alloc, and then has submitted none, or all.
  void submit(std::span<Submission> submissions) EXCLUDES(mutex_);

  void cancel(std::span<const std::uint64_t> ids) EXCLUDES(mutex_);

  // Ends this or the next call of take().
  void interrupt();

  // Cancels all requests and accepts no more. take() still returns them, and then kStopped. Idempotent.
  void stop() EXCLUDES(mutex_);

  // --- one thread ---

  enum class TakeStatus { kTaken, kNothing, kStopped, kInterrupted };

  // Blocks until requests have ended (kTaken), until the deadline or interrupt() (kNothing), or until a signal
  // (kInterrupted). kStopped: stop() was called, and every request has been taken. Requests that ended as kAnswered,
  // kFailed or kLost have a body (wire/broker_body.h). Throws std::bad_alloc, and then has taken none.
  TakeStatus take(TimePoint deadline, std::vector<EndedCall>& ended) EXCLUDES(mutex_);

 private:
  struct ActiveCall {
    ClientCallRef call;
    bool in_engine = false;  // only then can the engine end it
    bool cancelled = false;  // cancel() or stop() was called for it
  };

  using Calls = std::vector<ClientCallRef>;

  ClientCallRef make_call(Submission& submission);
  void add_active(std::span<Submission> submissions, Calls& calls) EXCLUDES(mutex_);
  bool submit_to_engine(const Calls& calls);
  void mark_in_engine(const Calls& calls) EXCLUDES(mutex_);
  void remove_active(const Calls& calls) EXCLUDES(mutex_);
  void request_cancel(ActiveCall& active, Calls& to_cancel) REQUIRES(mutex_);
  void cancel_all(const Calls& calls);
  void take_ended(std::vector<EndedCall>& ended) EXCLUDES(mutex_);
  bool finished() const EXCLUDES(mutex_);

  // Constant after construction.
  Engine& engine_;
  Server& server_;
  const std::uint32_t generation_;

  // Own synchronisation.
  Waiter& waiter_;
  const std::shared_ptr<EndedCalls> ended_calls_;
  std::atomic<bool> interrupted_{false};

  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, ActiveCall> active_ GUARDED_BY(mutex_);  // by id; until taken
  bool stopped_ GUARDED_BY(mutex_) = false;
};

}  // namespace service_streamer::ipc
