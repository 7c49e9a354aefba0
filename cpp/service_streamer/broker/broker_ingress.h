#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/batching/engine.h"
#include "service_streamer/calls/client_call.h"
#include "service_streamer/server/server.h"
#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {

// Where requests come as bytes into the engine of a Server, from a broker say, and their results leave it as bytes. Any thread
// brings requests, one thread takes what has ended. Has no thread of its own; the Server's watches the deadlines.
//
// Every request that was submitted is taken once, also a cancelled one. To be made and destroyed with what guards WaiterPool (the
// GIL). In a forked child nothing of it may be used.
class BrokerIngress {
 public:
  // Both must outlive it; the engine is the Server's.
  BrokerIngress(Engine& engine, Server& server);
  ~BrokerIngress();  // stop()
  BrokerIngress(const BrokerIngress&) = delete;
  BrokerIngress& operator=(const BrokerIngress&) = delete;

  // --- any thread ---

  enum class Submitted { kYes, kMalformed, kKnown, kClosed };
  struct Submission {
    SubmitHead head;
    Bytes body;  // slices of it are kept

    // What became of it. kKnown: one with this number is here, and was not taken yet.
    Submitted submitted = Submitted::kYes;
    std::uint32_t items = 0;
  };
  // Never blocks: they wait for room by themselves. Workers are woken when all are there.
  void submit(std::span<Submission> submissions) EXCLUDES(mutex_);

  void cancel(std::span<const std::uint64_t> ids) EXCLUDES(mutex_);

  // Ends take(), or the next one if nobody is in it.
  void interrupt();

  // Cancels what is left; what has ended can still be taken. Idempotent.
  void stop() EXCLUDES(mutex_);

  // --- one thread ---

  enum class Got { kSomething, kNothing, kStopped, kInterrupted };

  // Blocks until requests have ended (kSomething), the deadline or interrupt() (kNothing), a signal (kInterrupted), or the end
  // (kStopped): stop(), and everything was taken. Those that ended as kAnswered, kFailed or kLost have a body (wire/broker_body.h).
  Got take(TimePoint deadline, std::vector<EndedCall>& ended) EXCLUDES(mutex_);

 private:
  struct Held {
    ClientCall* call = nullptr;  // a reference
    bool entered = false;        // the engine has it: it may be cancelled
    bool cancelled = false;      // before that
  };

  ClientCall* make_call(Submission& submission);
  void register_all(std::span<Submission> submissions, std::span<ClientCall*> calls) EXCLUDES(mutex_);
  bool enter(std::span<ClientCall* const> calls);
  void have_entered(std::span<ClientCall* const> calls) EXCLUDES(mutex_);
  void forget(ClientCall& call) EXCLUDES(mutex_);
  void collect(Held& held, std::vector<ClientCall*>& to_cancel) REQUIRES(mutex_);
  void end_all(const std::vector<ClientCall*>& calls);
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
  std::unordered_map<std::uint64_t, Held> held_ GUARDED_BY(mutex_);  // that were not taken yet
  bool stopped_ GUARDED_BY(mutex_) = false;
};

}  // namespace service_streamer::ipc
