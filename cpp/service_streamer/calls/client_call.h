#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>

#include "service_streamer/base/mutex.h"
#include "service_streamer/calls/serialized_call.h"

namespace service_streamer::ipc {

class ClientCall;

// A reference to a call.
struct DropReference {
  void operator()(ClientCall* call) const;
};
using ClientCallRef = std::unique_ptr<ClientCall, DropReference>;

// Calls of clients in the order of their ends, with a reference to each. It never allocates.
class EndedCallChain {
 public:
  explicit EndedCallChain(ClientCall* first) : first_(first) {}
  ~EndedCallChain() {
    while (pop() != nullptr) {
    }
  }
  EndedCallChain(const EndedCallChain&) = delete;
  EndedCallChain& operator=(const EndedCallChain&) = delete;

  // Removes the first one; nullptr: there is none.
  ClientCallRef pop() noexcept;

 private:
  ClientCall* first_;
};

// The calls of clients that have ended and whose ends the IO thread has still to send. Any thread may push; the IO
// thread takes. No call blocks for long. After close(), calls end without being sent.
class EndedCalls {
 public:
  explicit EndedCalls(Waiter& to_wake) : waiter_(to_wake) {}
  ~EndedCalls() { close(); }
  EndedCalls(const EndedCalls&) = delete;
  EndedCalls& operator=(const EndedCalls&) = delete;

  // Wakes the IO thread, unless the IO thread itself calls this: it calls take() before it sleeps. Does not allocate.
  void push(ClientCall& call) noexcept EXCLUDES(mutex_);

  // The number of calls that take() would return. Only take() and close() make it smaller.
  std::size_t count() const EXCLUDES(mutex_);

  // Removes the first calls, `most` at most.
  EndedCallChain take(std::size_t most = std::numeric_limits<std::size_t>::max()) noexcept EXCLUDES(mutex_);

  // Drops what was not taken, and everything that is pushed later. Idempotent.
  void close() EXCLUDES(mutex_);

  // Called by the IO thread when it starts.
  void belong_to_this_thread() { owner_.store(std::this_thread::get_id(), std::memory_order_relaxed); }

 private:
  Waiter& waiter_;
  std::atomic<std::thread::id> owner_{};

  mutable Mutex mutex_;
  ClientCall* first_ GUARDED_BY(mutex_) = nullptr;
  ClientCall* last_ GUARDED_BY(mutex_) = nullptr;
  std::size_t count_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
};

// A request of a client process, or one that came through a broker, in the engine of the server.
class ClientCall final : public SerializedCall {
 public:
  ClientCall(std::shared_ptr<EndedCalls> ended_calls, std::uint64_t client, std::uint64_t id)
      : client_(client), id_(id), ended_calls_(std::move(ended_calls)) {}

  std::uint64_t client() const { return client_; }
  std::uint64_t id() const { return id_; }  // chosen by the client

  // The reply to the client, with the results moved out. To be called once, after the request has ended.
  EndedCall take_end();

  void publish() noexcept override { ended_calls_->push(*this); }

 private:
  friend class EndedCallChain;
  friend class EndedCalls;
  ~ClientCall() override = default;

  const std::uint64_t client_;
  const std::uint64_t id_;
  const std::shared_ptr<EndedCalls> ended_calls_;  // shared, because a request may outlive its Server
  ClientCall* next_ = nullptr;                     // in EndedCalls, or in an EndedCallChain
};

inline void DropReference::operator()(ClientCall* call) const {
  call->unref();
}

inline ClientCallRef new_ref(ClientCall& call) {
  call.ref();
  return ClientCallRef(&call);
}

// Leaves the reference to an owner of plain pointers, such as the engine.
inline void keep(ClientCallRef call) {
  [[maybe_unused]] const ClientCall* kept = call.release();
}

}  // namespace service_streamer::ipc
