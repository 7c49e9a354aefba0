#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "service_streamer/base/mutex.h"
#include "service_streamer/batching/engine.h"
#include "service_streamer/server/server.h"
#include "service_streamer/server/worker_events.h"
#include "service_streamer/server/worker_stats.h"
#include "service_streamer/transport/peer.h"
#include "service_streamer/transport/poller.h"
#include "service_streamer/transport/process_handle.h"

namespace service_streamer::ipc {

// The worker processes of a Server. Each worker that is ready and has no batch waits for a batch of the engine.
//
// If a worker dies, its batches are kept; for the engine they are still running. They go to the next free workers
// before a new batch is cut. If a worker has no memory for a batch, the batch is split, and its halves are kept in the
// same way.
//
// With ServerOptions::places a worker waits while it has fewer batches, and works on them for long. It is told which of
// them have only requests that have ended. It tells how many are paused; for these it gets others, but at most as many
// as it has places. The batches that it has weigh at most as much together as the engine allows for one.
//
// Used by the thread that has the turn (Server::Impl). Any thread may call set_places(), places(), deaths() and
// reports(). No call blocks.
class WorkerPool {
 public:
  WorkerPool(Engine& engine, Poller& poller, WorkerEvents& events, const ServerOptions& options);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Poller keys from here on belong to workers. Each has two: its socket and its process.
  static constexpr std::uint64_t kKeys = std::uint64_t{1} << 62;

  // Throws std::bad_alloc.
  void add(std::uint32_t id, FileDescriptor socket, pid_t pid, std::string setup, std::uint32_t place);
  void retire(std::uint32_t id);

  // Handles an event of the poller.
  void handle(const Poller::Event& event);

  // Gives batches to free workers, removes dead workers, and kills hung ones. Called before each sleep.
  // `engine_changed`: the engine woke the thread, or the time that the last call returned has come. Returns when to
  // call it again.
  TimePoint serve(bool engine_changed);

  // For a calling thread that receives the reply to its lone request itself. serve_lone() is serve(true), and sets
  // `next`; nullopt: no worker got the request in a batch of its own. Otherwise the poller does not report replies of
  // that worker. The thread waits until the connection is readable, and calls receive() then. If that returns false,
  // the poller reports them again, as after end_reading().
  struct Reading {
    const Request* request;
    std::uint32_t worker;
    std::shared_ptr<const Connection> connection;
  };
  std::optional<Reading> serve_lone(const Request& request, TimePoint& next);
  bool receive(const Reading& reading);
  void end_reading(const Reading& reading);

  bool any_ready() const;

  // Workers see the end of file. Batches in flight end as kClosed.
  void stop();

  // After a change, serve(true) must follow.
  void set_places(std::size_t places) { places_.store(places, std::memory_order_relaxed); }
  std::size_t places() const { return places_.load(std::memory_order_relaxed); }

  // The workers that died or hung after they were ready and before they retired.
  std::uint64_t deaths() const { return deaths_.load(std::memory_order_relaxed); }
  std::vector<WorkerReport> reports() const EXCLUDES(mutex_);

 private:
  // A batch that a worker has, or that waits for another worker.
  struct InFlightBatch {
    Batch batch;
    std::uint64_t id = 0;
    int attempts = 0;  // workers that may have started to run it
    TimePoint sent;
    bool cancelled = false;  // the worker was told that it is not wanted any more

    bool is_alone(const Request& request) const {
      return batch.ranges.size() == 1 && batch.ranges.front().request == &request && batch.ranges.front().whole();
    }
  };
  struct Worker {
    Worker(Poller& poller, std::uint32_t its_id, FileDescriptor socket, pid_t pid, std::uint32_t its_place);

    bool free(std::size_t places) const {
      const std::size_t limit = std::max<std::size_t>(places, 1) + std::min(paused, places);
      return ready && !retiring && in_flight.size() < limit && !peer.broken();
    }

    bool has_alone(const Request& request) const;

    const std::uint32_t id;
    const std::uint32_t place;
    Peer peer;
    const ProcessHandle process;
    Engine::IdleWorker idle;
    const std::shared_ptr<WorkerStats> stats;

    std::size_t told_places = 0;
    std::size_t paused = 0;  // of its batches, as it has told
    bool received_hello = false;
    bool ready = false;
    bool retiring = false;
    bool killed_hung = false;
    bool waiting = false;                                   // the engine counts it as idle
    TimePoint until = TimePoint::max();                     // when to ask the engine again
    std::vector<std::unique_ptr<InFlightBatch>> in_flight;  // oldest first
  };

  Worker* find(std::uint32_t id) const;
  void receive(Worker& worker);
  bool handle_message(Worker& worker, InMessage& message);
  bool handle_reply(Worker& worker, InMessage& message);
  bool complete(Worker& worker, std::unique_ptr<InFlightBatch>& in_flight, ReplyMessage& reply);
  bool retry_in_halves(std::unique_ptr<InFlightBatch>& in_flight);
  void give_batch(Worker& worker);
  bool retry_batch(Worker& worker);
  ItemWeights live_items(const Worker& worker) const;
  void drop_ended_retries();
  bool drop_ended(InFlightBatch& in_flight);
  static OutMessage message_of(const InFlightBatch& in_flight);
  void send(Worker& worker, std::unique_ptr<InFlightBatch> in_flight);
  void kill_hung(TimePoint now);
  void tell_places(Worker& worker);
  void cancel_ended(Worker& worker);
  void remove_broken();
  void lose(const Worker& worker, std::unique_ptr<InFlightBatch> in_flight);
  void stop_waiting_for_batch(Worker& worker);
  void end(InFlightBatch& in_flight, Outcome outcome, const std::string& note);

  // Constant after construction.
  Engine& engine_;
  const BatchLimits limits_;  // for the weight of what a worker has
  Poller& poller_;
  WorkerEvents& events_;
  const int retries_allowed_;
  const Duration hang_timeout_;

  // Of the thread that has the turn.
  std::map<std::uint32_t, std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<InFlightBatch>> retries_;  // oldest first
  std::uint64_t last_batch_id_ = 0;
  bool has_broken_ = false;        // a worker may have to be removed
  const Request* lone_ = nullptr;  // in serve_lone()

  std::atomic<std::size_t> places_;
  std::atomic<std::uint64_t> deaths_{0};  // written by the thread that has the turn

  mutable Mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<WorkerStats>> stats_ GUARDED_BY(mutex_);
};

}  // namespace service_streamer::ipc
