#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "service_streamer/batching/request.h"
#include "service_streamer/calls/call.h"
#include "service_streamer/wire/message.h"
#include "service_streamer/wire/payload.h"

namespace service_streamer::ipc {

// A request whose items travel: the node that the engine of a Server or a ClientLink queues. Knows no Python: it is ended and
// published by threads that never take the GIL.
class SerializedCall : public Call {
 public:
  Payload payload;  // dropped when the last hold goes

  // Written by the IO thread before the request ends as kAnswered, kFailed or kLost; read once it is published, and only after
  // such an end. In the order of the items; of a failed request only the error.
  std::vector<ResultRange> pieces;
  std::string note;  // kLost: what became of the worker; begins with "init: " when no worker could load its model

  static SerializedCall& of(Request& request) { return static_cast<SerializedCall&>(Call::of(request)); }

  // What came for a range of the items. By the IO thread alone; after an error nothing more is taken.
  void add(ResultRange piece);

  void drop_inputs() final;

 protected:
  SerializedCall() = default;
  ~SerializedCall() override = default;

 private:
  bool failed_ = false;  // of the thread that adds: the pieces may be the caller's already
};

// Who hands requests on to another process, and there takes back those that have ended here.
class Forwarder {
 public:
  virtual ~Forwarder() = default;
  // Neither answered nor failed; also for what it ended itself. Any thread, no lock.
  virtual void withdraw(std::uint64_t id, Outcome outcome) = 0;
};

// One that was made in this process: a Future waits for it.
class LocalCall final : public SerializedCall {
 public:
  LocalCall() = default;

  void publish(WakeChain& chain) override;

  Observers observers;

  // By the thread that hands it on, before it is sent: `to` will hear of it, once, if the request ends without an answer (also
  // if that was just before). Returns its number: one that came back keeps that of the first time, and whom it was handed on by.
  std::uint64_t forwarded(const std::shared_ptr<Forwarder>& to, std::uint64_t id);

  // By the same thread, before the engine has it again: the other process did not take it.
  void taken_back() { travel_.fetch_and(~std::uint32_t{kForwarded}, std::memory_order_acq_rel); }

  // The number that it was handed on under; 0: it is not there. Any thread.
  std::uint64_t forwarded_as() const;

 private:
  enum : std::uint32_t { kForwarded = 1, kEnded = 2 };

  ~LocalCall() override = default;

  std::atomic<std::uint32_t> travel_{0};
  std::uint64_t id_ = 0;                  // written once, before kForwarded
  std::shared_ptr<Forwarder> forwarder_;  // the same
};

using calls::let_go;
using calls::publish;

}  // namespace service_streamer::ipc
