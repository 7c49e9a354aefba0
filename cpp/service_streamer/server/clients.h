#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/batching/engine.h"
#include "service_streamer/calls/client_call.h"
#include "service_streamer/server/worker_availability.h"
#include "service_streamer/transport/peer.h"
#include "service_streamer/transport/poller.h"
#include "service_streamer/wire/query.h"

namespace service_streamer::ipc {

// The client processes of a Server, as its IO thread sees them: their requests go into the engine in the order in which they come,
// and each is answered once, those that a batch ended in one message.
//
// A client is not read from while a request of it has no room in the queue, or while it leaves too much of its answers unread: its
// own queue then fills, and its own max_queue holds. One that dies has its requests cancelled. Once the engine is closed they are
// told of each new request that it was not taken. Used by the IO thread alone.
class Clients {
 public:
  // What they may ask about.
  struct Workers {
    WorkerAvailability& failure;
    std::function<bool()> any_ready;
    std::function<std::string()> stats;
  };
  Clients(Engine& engine, Poller& poller, Workers workers, FileDescriptor listener);
  ~Clients();
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  // Keys of the poller from here on, and below WorkerPool::kKeys, mean them.
  static constexpr std::uint64_t kKeys = 0;

  void start();  // in the IO thread

  // What the poller tells.
  void handle(const Poller::Event& event);

  // Sends what has ended, reads on where there is room again, and lets the dead go; to be called before each sleep. True: there
  // is more to be read.
  bool serve();

  // Everybody is told which of his requests no worker had, and that the others end as kClosed, and sees the end of file. Nobody
  // can connect any more.
  void stop();

 private:
  struct Client;

  void accept();
  void read(Client& client);
  bool understand(Client& client, InMessage& message);
  bool submit(Client& client, InMessage& message);
  void submit(Client& client, SubmittedRequest& submitted);
  bool cancel(Client& client, const InMessage& message);
  bool answer(Client& client, const InMessage& message);
  QueryReply reply(Client& client, const Query& query);
  void tell(Client& client, std::uint64_t id, const QueryReply& reply);
  void tell_ready();
  void send_answers();
  void end_all(Client& client, Outcome outcome);
  void bury_dead();

  // Constant after construction.
  Engine& engine_;
  Poller& poller_;
  const Workers workers_;
  const std::shared_ptr<EndedCalls> ended_calls_;

  // Of the IO thread.
  FileDescriptor listener_;
  std::map<std::uint64_t, std::unique_ptr<Client>> clients_;
  std::vector<SubmittedRequest> submitted_;  // to keep their memory
  std::uint64_t last_client_ = kKeys;
  std::size_t asked_ready_ = 0;  // who wait for a worker
};

}  // namespace service_streamer::ipc
