#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/server/clients.h"
#include "service_streamer/server/server.h"
#include "service_streamer/server/stats_json.h"
#include "service_streamer/server/worker_availability.h"
#include "service_streamer/server/worker_events.h"
#include "service_streamer/server/worker_pool.h"
#include "service_streamer/transport/poller.h"

namespace service_streamer::ipc {

// The IO thread of a Server, and the requests of other threads to it.
//
// The thread that has the turn gives batches to workers and takes their replies: the IO thread, unless it sleeps. A
// calling thread whose request is the only one takes the turn to send it, waits at the socket of the worker, and takes
// the turn again to receive the reply. This saves two wake-ups of the IO thread. Decision 070 says why.
class Server::Impl {
 public:
  Impl(Engine& engine, const ServerOptions& options);
  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const std::string& address() const { return address_; }
  bool from_this_process() const { return generation_ == ForkLock::generation(); }
  void start() EXCLUDES(life_);
  void stop() EXCLUDES(life_, mutex_);

  Completion::Wait wait(const WorkerWake& worker, Request& request, Waiter& waiter, TimePoint deadline) noexcept
      EXCLUDES(turn_);

  void configure(const EngineChange& change) EXCLUDES(settings_);
  void set_workers(int workers) EXCLUDES(settings_);
  std::uint32_t add_worker(FileDescriptor socket, pid_t pid, std::string setup, std::uint32_t place) EXCLUDES(mutex_);
  void retire_worker(std::uint32_t id) EXCLUDES(mutex_);
  void set_failure(std::optional<std::string> note);
  void check_failure(Request& request) { availability_.check(request); }
  WorkerEvents& events() { return events_; }
  std::vector<WorkerReport> workers() const { return workers_.reports(); }
  std::string stats() const { return stats_json(engine_, workers_.deaths(), workers_.places(), workers_.reports()); }

 private:
  struct NewWorker {
    std::uint32_t id;
    FileDescriptor socket;
    pid_t pid;
    std::string setup;
    std::uint32_t place = 0;
  };

  void wake() { poller_.waiter().parker.unpark(); }
  std::optional<WorkerPool::Reading> begin_reading(const WorkerWake& worker, const Request& request) EXCLUDES(turn_);
  bool receive(const WorkerPool::Reading& reading) EXCLUDES(turn_);
  void end_reading(Waiter& caller, const std::optional<WorkerPool::Reading>& reading) EXCLUDES(turn_);
  void run() EXCLUDES(turn_);
  bool apply_requests() REQUIRES(turn_) EXCLUDES(mutex_);
  void shut_down() EXCLUDES(turn_, mutex_);

  // Constant after construction.
  Engine& engine_;
  const std::string address_;
  const std::uint32_t generation_ = ForkLock::generation();

  bool read_by_caller_ GUARDED_BY(turn_) = false;  // a calling thread waits at a socket
  TimePoint sleeps_until_ GUARDED_BY(turn_) = TimePoint::min();
  Mutex turn_;  // taken before all others but life_; the IO thread has it unless it sleeps

  // Used by the thread that has the turn, or with their own synchronisation. Clients are for the IO thread only.
  WorkerEvents events_;
  WorkerAvailability availability_;
  Poller poller_;
  WorkerPool workers_;
  Clients clients_;
  std::atomic<std::uint32_t> last_worker_{0};

  // What other threads ask of the IO thread.
  Mutex mutex_;
  std::vector<NewWorker> new_workers_ GUARDED_BY(mutex_);
  std::vector<std::uint32_t> retiring_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  Mutex settings_;  // taken before the mutex of the engine
  int worker_num_ GUARDED_BY(settings_);

  Mutex life_;  // taken before mutex_
  bool stopped_ GUARDED_BY(life_) = false;
  std::thread thread_ GUARDED_BY(life_);
};

}  // namespace service_streamer::ipc
