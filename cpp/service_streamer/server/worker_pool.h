#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
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

// The worker processes of a Server, as its IO thread sees them: each that is ready and has no batch waits for one of the engine.
// A batch whose worker died is kept, still running for the engine, and goes to the next free worker before anything new is cut. So
// do the halves of one for which its worker had no memory.
//
// Used by the IO thread alone, but for reports().
class WorkerPool {
 public:
  WorkerPool(Engine& engine, Poller& poller, WorkerEvents& events, const ServerOptions& options);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Keys of the poller that mean a worker are those from here on, two for each.
  static constexpr std::uint64_t kKeys = std::uint64_t{1} << 62;

  void add(std::uint32_t id, FileDescriptor socket, pid_t pid, std::string setup);
  void retire(std::uint32_t id);

  // What the poller tells of a worker.
  void handle(const Poller::Event& event);

  // Gives work to everybody who is free, deals with the dead and kills the hung; to be called before each sleep, with `look`
  // when the engine woke the thread or the time has come. Returns when to be called again.
  TimePoint serve(bool look);

  bool any_ready() const;

  // Everybody sees the end of file; batches that are under way end as kClosed.
  void stop();

  std::vector<WorkerReport> reports() const EXCLUDES(mutex_);

 private:
  // A batch under way.
  struct Flight {
    Batch batch;
    std::uint64_t id = 0;
    int attempts = 0;  // workers that may have begun with it
    TimePoint sent;
  };
  struct Worker {
    Worker(Poller& poller, std::uint32_t its_id, FileDescriptor socket, pid_t pid);

    bool free() const { return ready && !retiring && !flight && !peer.broken(); }

    const std::uint32_t id;
    Peer peer;
    const ProcessHandle process;
    Engine::IdleWorker idle;
    const std::shared_ptr<WorkerStats> figures;

    bool heard_hello = false;
    bool ready = false;
    bool retiring = false;
    bool killed_hung = false;
    bool asked = false;                  // the engine knows that it waits, and
    TimePoint until = TimePoint::max();  // until when it may sleep
    std::unique_ptr<Flight> flight;
  };

  Worker* find(std::uint32_t id) const;
  void receive(Worker& worker);
  bool understand(Worker& worker, InMessage& message);
  bool answered(Worker& worker, InMessage& message);
  bool complete(Worker& worker, ReplyMessage& reply);
  bool halve(Worker& worker);
  void give(Worker& worker);
  bool give_again(Worker& worker);
  void forget_ended_retries();
  bool drop_ended(Flight& flight);
  static OutMessage message_of(const Flight& flight);
  void send(Worker& worker, std::unique_ptr<Flight> flight);
  void kill_hung(TimePoint now);
  void bury_dead();
  void take_from(Worker& worker);
  void end(Flight& flight, Outcome outcome, const std::string& note);

  // Constant after construction.
  Engine& engine_;
  Poller& poller_;
  WorkerEvents& events_;
  const int retries_allowed_;
  const Duration hang_timeout_;

  // Of the IO thread.
  std::map<std::uint32_t, std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Flight>> retries_;  // the oldest first
  std::uint64_t last_flight_ = 0;
  bool deaths_ = false;  // somebody may have to be buried

  mutable Mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<WorkerStats>> figures_ GUARDED_BY(mutex_);
};

}  // namespace service_streamer::ipc
