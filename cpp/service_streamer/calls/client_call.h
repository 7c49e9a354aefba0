#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "service_streamer/base/mutex.h"
#include "service_streamer/calls/serialized_call.h"

namespace service_streamer::ipc {

class ClientCall;

// Calls of clients that have ended, on their way to the IO thread, which sends them off.
class EndedCalls {
 public:
  explicit EndedCalls(Waiter& to_wake) : waiter_(to_wake) {}
  ~EndedCalls() { close(); }
  EndedCalls(const EndedCalls&) = delete;
  EndedCalls& operator=(const EndedCalls&) = delete;

  // Any thread. Wakes the IO thread, unless that is the one that calls: it looks before it sleeps.
  void push(ClientCall& call) EXCLUDES(mutex_);

  // Everything pushed since the last call, in order; each is to be unref()'d.
  std::vector<ClientCall*> take() EXCLUDES(mutex_);

  // From now on calls end unseen.
  void close() EXCLUDES(mutex_);

  void belong_to_this_thread() { owner_.store(std::this_thread::get_id(), std::memory_order_relaxed); }

 private:
  Waiter& waiter_;
  std::atomic<std::thread::id> owner_{};

  Mutex mutex_;
  std::vector<ClientCall*> ended_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

// A request of a client process, in the engine of the Server.
class ClientCall final : public SerializedCall {
 public:
  ClientCall(std::shared_ptr<EndedCalls> answers, std::uint64_t client, std::uint64_t id)
      : client_(client), id_(id), ended_calls_(std::move(answers)) {}

  std::uint64_t client() const { return client_; }
  std::uint64_t id() const { return id_; }  // the client's

  // What its client is to be told, once it has ended.
  EndedCall take_end();

  void publish(WakeChain&) override { ended_calls_->push(*this); }

 private:
  ~ClientCall() override = default;

  const std::uint64_t client_;
  const std::uint64_t id_;
  const std::shared_ptr<EndedCalls> ended_calls_;  // a request may end after its Server has gone
};

}  // namespace service_streamer::ipc
