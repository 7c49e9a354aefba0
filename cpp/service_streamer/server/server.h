#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/batching/engine.h"

namespace service_streamer::ipc {

struct ServerOptions {
  int retries = 1;                           // of a batch whose worker died, on another one
  Duration hang_timeout = Duration::zero();  // a worker that has a batch for longer is killed; zero: never
  std::string address;                       // empty: an abstract name of its own
};

struct WorkerReport {
  std::uint32_t id = 0;
  pid_t pid = 0;
  enum class State { kStarting, kReady, kRetiring } state = State::kStarting;
  std::string about;  // what it told of itself, JSON
  std::uint64_t batches = 0;
  std::uint64_t items = 0;
  DurationSummary decode, predict, encode, transport;  // transport: batch sent to reply received, less the other three
};

// The engine's process side of everything: one thread, which never takes the GIL, owns all sockets. It gives batches of the
// engine to worker processes, takes requests of client processes into the engine, and brings everybody his answers.
//
// A worker that dies has its batch run again on another one (`retries` times), then its requests end as kLost. A client that dies
// has its requests cancelled. A peer that breaks the protocol is cut off, and costs nobody else anything.
class Server {
 public:
  // The engine must outlive it. Listens at once; throws std::system_error. The thread starts with start().
  Server(Engine& engine, const ServerOptions& options);
  ~Server();  // stop()

  const std::string& address() const;
  void start();

  // Wakes what Engine::submit() says is to be woken. But where that is this server's thread, and it sleeps, its work is done here and now, which
  // spares a lone request one wake-up of three. For such alone: while that thread wakes up, others join the batch. Never blocks, but
  // sends what there is to send.
  void wake(Waiter& waiter) noexcept;

  // The same, and waits for the end of the request as Engine::wait_for_end() does. If a worker has it alone its answer is read here, too, which
  // spares the second wake-up. Nobody else may wait for the request yet: while he does it would be read by nobody.
  Completion::Wait wake_and_wait(Waiter& to_wake, Request& request, Waiter& waiter, TimePoint deadline) noexcept;

  // Ends the thread and closes every socket: workers and clients see the end of file. Idempotent; blocks until the thread
  // has ended; no event is posted any more. Batches that are under way end as kClosed; what else has not ended then must be
  // ended by Engine::abort().
  void stop();

  // --- the supervisor: one thread of the owner that starts worker processes ---

  // A process at the other end of `socket`; `setup` is sent to it first. Returns its id.
  std::uint32_t add_worker(FileDescriptor socket, pid_t pid, std::string setup);

  // It gets no more batches from kRetired on, and the end of file once it has answered what it has.
  void retire_worker(std::uint32_t id);

  struct Event {
    enum class Kind { kReady, kInitFailed, kRetired, kGone } kind;
    std::uint32_t worker;
    std::string text;        // kReady: what it told of itself; kInitFailed: the traceback
    bool had_batch = false;  // kGone: while it worked on one
    bool killed_hung = false;
  };
  // Blocks until an event, interrupt(), the deadline or a signal (nullopt).
  std::optional<Event> next_event(Waiter& waiter, TimePoint deadline);
  void interrupt();

  // No worker will come: every request ends as kLost with this note, and so does every later one. nullopt: takes it back.
  void set_failure(std::optional<std::string> note);
  // After Engine::submit: ends the request if set_failure() is in force.
  void check_failure(Request& request);

  std::vector<WorkerReport> workers() const;
  // Engine and workers, as JSON (see ipc/stats_json.h): the same text that clients get.
  std::string stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;  // leaked in a forked child
};

}  // namespace service_streamer::ipc
