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
#include "service_streamer/waiting/answer_wait.h"

namespace service_streamer::ipc {

// The thread of a Server, and whoever does its work.
class Server::Impl {
 public:
  Impl(Engine& engine, const ServerOptions& options);
  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const std::string& address() const { return address_; }
  bool from_this_process() const { return generation_ == ForkLock::generation(); }
  void start() EXCLUDES(life_);
  void wake(Waiter& waiter) noexcept EXCLUDES(turn_);
  Completion::Wait wake_and_wait(Waiter& to_wake, Request& request, Waiter& waiter, TimePoint deadline) noexcept
      EXCLUDES(turn_);
  void stop() EXCLUDES(life_, mutex_);

  std::uint32_t add_worker(FileDescriptor socket, pid_t pid, std::string setup) EXCLUDES(mutex_);
  void retire_worker(std::uint32_t id) EXCLUDES(mutex_);
  void set_failure(std::optional<std::string> note);
  void check_failure(Request& request) { failure_.check(request); }
  WorkerEvents& events() { return events_; }
  std::vector<WorkerReport> workers() const { return workers_.reports(); }
  std::string stats() const { return stats_json(engine_, workers_.reports()); }

 private:
  struct NewWorker {
    std::uint32_t id;
    FileDescriptor socket;
    pid_t pid;
    std::string setup;
  };

  void wake() { poller_.waiter().parker.unpark(); }
  void run() EXCLUDES(turn_);
  std::optional<WorkerPool::Reading> begin_reading(const Request& request) EXCLUDES(turn_);
  bool receive(const WorkerPool::Reading& reading) EXCLUDES(turn_);
  void end_reading(const WorkerPool::Reading& reading) EXCLUDES(turn_);
  bool take_orders() REQUIRES(turn_) EXCLUDES(mutex_);
  TimePoint expire() REQUIRES(turn_);
  void clean_up() EXCLUDES(turn_, mutex_);

  // Constant after construction.
  Engine& engine_;
  const std::string address_;
  const std::uint32_t generation_ = ForkLock::generation();

  // Who has it does the work of the IO thread: that thread but when it sleeps, else whoever has something for it to do. Taken before
  // all others but life_.
  Mutex turn_;
  TimePoint sleeps_until_ GUARDED_BY(turn_) = TimePoint::min();

  // Own synchronisation, or of who has the turn.
  WorkerEvents events_;
  Failure failure_;
  Poller poller_;
  WorkerPool workers_;
  Clients clients_;
  std::atomic<std::uint32_t> last_worker_{0};

  // The sleep of the one caller who reads his answer himself.
  std::atomic<bool> somebody_reads_{false};
  AnswerWait answer_wait_;

  // What other threads want of the IO thread.
  Mutex mutex_;
  std::vector<NewWorker> new_workers_ GUARDED_BY(mutex_);
  std::vector<std::uint32_t> retiring_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  Mutex life_;  // taken before mutex_
  bool stopped_ GUARDED_BY(life_) = false;
  std::thread thread_ GUARDED_BY(life_);
};

}  // namespace service_streamer::ipc
