#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/batching/engine.h"
#include "service_streamer/calls/client_call.h"
#include "service_streamer/server/worker_availability.h"
#include "service_streamer/server/worker_events.h"
#include "service_streamer/transport/peer.h"
#include "service_streamer/transport/poller.h"
#include "service_streamer/wire/query.h"

namespace service_streamer::ipc {

// The client processes of a Server. Their requests go into the engine in the order in which they arrive. The end of
// each request is reported once; the requests that one batch ended go to their client in one message.
//
// The IO thread does not read from a client while one of its requests waits for room in the queue, or while it leaves
// too many results unread. The client's own queue then fills up to its own max_queue. If a client dies, its requests
// are cancelled. Once the engine is closed, new requests are reported as not accepted. The supervisor gets an event
// when a client connects and when its connection ends.
//
// Used by the IO thread only. No call blocks but stop().
class Clients {
 public:
  // The workers, as far as queries are about them.
  struct Workers {
    WorkerAvailability& availability;
    std::function<bool()> any_ready;
    std::function<void(const EngineChange&)> configure;
    std::function<std::string()> stats;
  };
  Clients(Engine& engine, Poller& poller, WorkerEvents& events, Workers workers, FileDescriptor listener);
  ~Clients();
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  // Poller keys from here to WorkerPool::kKeys belong to this class.
  static constexpr std::uint64_t kKeys = 0;

  void start();  // called by the IO thread before all others

  // Handles an event of the poller.
  void handle(const Poller::Event& event);

  // Sends results, reads from clients that were blocked, and removes dead clients. Called before each sleep. True:
  // there is more to read, so the thread must not sleep.
  bool serve();

  // Ends all requests as kClosed and closes the listening socket. Sends each client its last results and the end of
  // file. Blocks until the clients have read them, for at most one second.
  void stop();

 private:
  static constexpr std::size_t kMaxUnsent = std::size_t{64} << 20;  // bytes of results that a client may leave unread

  struct Client {
    Client(Poller& poller, std::uint64_t its_id, FileDescriptor socket)
        : id(its_id), peer(poller, its_id, std::move(socket)) {}

    // True while a request waits for room, or the client leaves too many results unread. It is not read from meanwhile.
    bool blocked() const { return !waiting.empty() || peer.unsent() > kMaxUnsent; }

    const std::uint64_t id;
    Peer peer;
    bool received_hello = false;
    std::string pid;                                       // empty until its hello is accepted
    bool more = false;                                     // messages may have been received but not read
    std::unordered_map<std::uint64_t, ClientCall*> calls;  // requests that have not ended, by id; a reference each
    std::deque<ClientCall*> waiting;                       // requests in the engine's waiting room; a reference each
    std::vector<EndedCall> ended;                          // to be sent
    std::vector<std::uint64_t> ready_queries;              // ids of kWaitReady queries
    std::uint64_t recording = 0;                           // that it has started and not finished; 0: none
  };

  void accept();
  void read(Client& client);
  bool handle_message(Client& client, InMessage& message);
  bool submit(Client& client, InMessage& message);
  void submit(Client& client, SubmittedRequest& submitted);
  bool cancel(Client& client, const InMessage& message);
  bool handle_query(Client& client, const InMessage& message);
  QueryReply reply_to(Client& client, const Query& query);
  void send_reply(Client& client, std::uint64_t id, QueryReply reply);
  void answer_ready_queries();
  void send_results();
  void refuse(Client& client, ClientCall& call);
  void end_all(Client& client, Outcome outcome);
  void remove_broken();

  // Constant after construction.
  Engine& engine_;
  Poller& poller_;
  WorkerEvents& events_;
  const Workers workers_;
  const std::shared_ptr<EndedCalls> ended_calls_;

  // Used by the IO thread only.
  FileDescriptor listener_;
  std::map<std::uint64_t, std::unique_ptr<Client>> clients_;
  std::vector<SubmittedRequest> submitted_;  // reused, to avoid allocations
  std::uint64_t last_client_ = kKeys;
  std::size_t ready_query_count_ = 0;  // of all clients
};

}  // namespace service_streamer::ipc
