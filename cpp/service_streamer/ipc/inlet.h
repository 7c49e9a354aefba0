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
#include "service_streamer/ipc/message.h"
#include "service_streamer/ipc/remote_call.h"
#include "service_streamer/ipc/server.h"

namespace service_streamer::ipc {

// Where requests come as bytes into the engine of a Server, from a broker say, and their results leave it as bytes. Any thread
// brings requests, one thread takes what has ended. Has no thread of its own; the Server's watches the deadlines.
//
// Every request that was submitted is taken once, also a cancelled one. To be made and destroyed with what guards WaiterPool (the
// GIL). In a forked child nothing of it may be used.
class Inlet {
 public:
  // Both must outlive it; the engine is the Server's.
  Inlet(Engine& engine, Server& server);
  ~Inlet();  // stop()
  Inlet(const Inlet&) = delete;
  Inlet& operator=(const Inlet&) = delete;

  // --- any thread ---

  enum class Submitted { kYes, kMalformed, kKnown, kClosed };
  // Never blocks: it waits for room by itself. kKnown: one with this number is here and was not taken yet. `items`: how many it
  // has. Keeps slices of the body.
  Submitted submit(const SubmitHead& head, const Bytes& body, std::uint32_t& items) EXCLUDES(mutex_);

  void cancel(std::span<const std::uint64_t> ids) EXCLUDES(mutex_);

  // Ends take(), or the next one if nobody is in it.
  void interrupt();

  // Cancels what is left; what has ended can still be taken. Idempotent.
  void stop() EXCLUDES(mutex_);

  // --- one thread ---

  enum class Got { kSomething, kNothing, kStopped, kInterrupted };

  // Blocks until requests have ended (kSomething), the deadline or interrupt() (kNothing), a signal (kInterrupted), or the end
  // (kStopped): stop(), and everything was taken. Those that ended as kAnswered, kFailed or kLost have a body (ipc/parcel.h).
  Got take(TimePoint deadline, std::vector<EndedCall>& ended) EXCLUDES(mutex_);

 private:
  struct Held {
    RemoteCall* call = nullptr;  // a reference
    bool entered = false;        // the engine has it: it may be cancelled
    bool cancelled = false;      // before that
  };

  void enter(RemoteCall& call) EXCLUDES(mutex_);
  void forget(RemoteCall& call) EXCLUDES(mutex_);
  void collect(Held& held, std::vector<RemoteCall*>& to_cancel) REQUIRES(mutex_);
  void end_all(const std::vector<RemoteCall*>& calls);
  void take_ended(std::vector<EndedCall>& ended) EXCLUDES(mutex_);
  bool finished() const EXCLUDES(mutex_);

  // Constant after construction.
  Engine& engine_;
  Server& server_;
  const std::uint32_t generation_;

  // Own synchronisation.
  Waiter& waiter_;
  const std::shared_ptr<Answers> answers_;
  std::atomic<bool> interrupted_{false};

  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, Held> held_ GUARDED_BY(mutex_);  // that were not taken yet
  bool stopped_ GUARDED_BY(mutex_) = false;
};

}  // namespace service_streamer::ipc
