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

// A Call whose items and results are bytes, for another process. The engine of a Server or a ClientLink queues it.
class SerializedCall : public Call {
 public:
  Payload payload;  // the items; freed when the last hold is dropped

  // The results in the order of the items; if the request failed, only the error. Written by add() before the request
  // ends as kAnswered or kFailed, and read only after such an end was published.
  std::vector<ResultRange> ranges;
  // Set before an end as kLost: how the worker died. Begins with "init: " if no worker could load its model.
  std::string note;

  static SerializedCall& of(Request& request) { return static_cast<SerializedCall&>(Call::of(request)); }

  // Adds the results of a range of the items. Ignored after an error. Called by one thread at a time: the IO thread, or
  // any thread under the mutex of ForwardedRequests.
  void add(ResultRange range);

  // Whether an end that another process has reported is valid: its results must cover all items.
  bool fits(const EndedCall& end) const;

  void drop_inputs() final;

 protected:
  SerializedCall() = default;
  ~SerializedCall() override = default;

 private:
  bool failed_ = false;  // used only by add(), because another thread may already read `ranges`
};

// Forwards requests to another process. It is notified of forwarded requests that have ended in this process.
class Forwarder {
 public:
  virtual ~Forwarder() = default;
  // Called when a forwarded request has ended here as `outcome` without a result, also if the forwarder itself ended
  // it. The other process need not run it any more, but it may: without memory the notice is dropped. Any thread; the
  // caller holds no lock.
  virtual void cancel(std::uint64_t id, Outcome outcome) noexcept = 0;
};

// A SerializedCall of this process; a future waits for it.
class LocalCall final : public SerializedCall {
 public:
  LocalCall() = default;

  void publish() noexcept override;

  Observers observers;

  // Called by the thread that forwards the request, before it is sent. From now on `to` is told once if the request
  // ends without a result; at once, if it has already ended. Returns the id to forward it under. A request that came
  // back and is forwarded again keeps its first id and its first forwarder.
  std::uint64_t forwarded(const std::shared_ptr<Forwarder>& to, std::uint64_t id);

  // Called by the same thread if the other process did not take the request, before the engine queues it again.
  void taken_back() { state_.fetch_and(~std::uint32_t{kForwarded}, std::memory_order_acq_rel); }

  // The id that the request is forwarded under, or 0 if it is not forwarded now. Any thread.
  std::uint64_t forwarded_as() const;

 private:
  enum : std::uint32_t { kForwarded = 1, kEnded = 2 };

  ~LocalCall() override = default;

  std::atomic<std::uint32_t> state_{0};
  std::uint64_t id_ = 0;                  // written once, before kForwarded is set
  std::shared_ptr<Forwarder> forwarder_;  // the same
};

using calls::let_go;
using calls::publish;

// The same after setting the `note` of each.
void publish(EndedRequests& ended, const std::string& note);

}  // namespace service_streamer::ipc
