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
  int retries = 1;                           // how often a batch is run again after its worker died
  Duration hang_timeout = Duration::zero();  // a worker is killed if a batch takes longer; zero: never
  std::string address;                       // where clients connect; empty: a unique abstract name
  std::size_t places = 0;  // a worker works on so many batches at a time, and answers each by itself; 0: one, as usual
};

struct WorkerReport {
  std::uint32_t id = 0;
  pid_t pid = 0;
  enum class State { kStarting, kReady, kRetiring } state = State::kStarting;
  std::string about;  // JSON from the worker about itself
  std::uint64_t batches = 0;
  std::uint64_t items = 0;
  DurationSummary decode, predict, encode,
      transport;  // transport: the time from sending to the reply, less the other three
};

// Connects an engine to other processes. One thread, `streamer-server`, owns all sockets and never takes the GIL. It
// sends batches to worker processes, takes the requests of client processes into the engine, and sends their results
// back.
//
// If a worker dies, its batch is run again by another worker, `retries` times; then its requests end as kLost. If a
// client dies, its requests are cancelled. A peer that breaks the protocol is disconnected, without effect on other
// peers.
//
// Any thread may call the methods, but for the supervisor's. Methods do not block unless they say so. A forked child
// must not use its parent's Server; its destructor does nothing there.
class Server {
 public:
  // The engine must outlive the Server. The constructor listens at the address; it throws std::system_error.
  Server(Engine& engine, const ServerOptions& options);
  ~Server();  // stop()

  const std::string& address() const;

  // Starts the thread. Idempotent.
  void start();

  // Ends the thread and closes all sockets: workers and clients see the end of file. Batches in flight end as kClosed,
  // and so do the requests of clients. Call Engine::abort() to end the remaining requests. No event is posted
  // afterwards. Blocks until the thread has ended. Idempotent.
  void stop();

  // As Engine::configure() and Engine::set_workers(). With ServerOptions::places, the batch size is the number of them,
  // and other settings have no effect. A worker that has more batches keeps them.
  void configure(const EngineChange& change);
  void set_workers(int workers);

  // --- for the supervisor: the thread that starts worker processes ---

  // Adds the worker process at the other end of `socket`, and sends it `setup`. Returns the worker's id. `place`: a
  // worker that replaces another one has the same place, and what was learned about its memory.
  std::uint32_t add_worker(FileDescriptor socket, pid_t pid, std::string setup, std::uint32_t place = 0);

  // The worker gets no more batches; kRetired confirms it. It sees the end of file after the reply to its last batch.
  void retire_worker(std::uint32_t id);

  struct Event {
    enum class Kind { kReady, kInitFailed, kRetired, kGone, kClientConnected, kClientGone } kind;
    std::uint32_t worker;      // 0 if the event is about a client
    std::string text;          // kReady: JSON from the worker about itself; kInitFailed: the traceback;
                               // kClientConnected, kClientGone: the client's pid
    bool had_batch = false;    // kGone: the worker died while it had a batch
    bool killed_hung = false;  // kGone: it was killed because of hang_timeout
  };
  // Blocks until an event. Returns nullopt after interrupt(), the deadline or a signal.
  std::optional<Event> next_event(Waiter& waiter, TimePoint deadline);
  void interrupt();  // any thread; ends this or the next call of next_event()

  // Declares that no worker is available: all requests end as kLost with this note, and so do later ones. nullopt:
  // revokes that.
  void set_failure(std::optional<std::string> note);
  // Call this after Engine::submit(). Ends the request if no worker is available.
  void check_failure(Request& request);

  // For a thread whose request was the only one when Engine::submit() set `worker`: wakes that worker and blocks as
  // Completion::wait() does. If the server's thread sleeps, the calling thread sends the request to a worker process
  // and receives the reply itself. Out of memory, it ends the process, as the server's thread does.
  Completion::Wait wait(const WorkerWake& worker, Request& request, Waiter& waiter, TimePoint deadline) noexcept;

  std::vector<WorkerReport> workers() const;
  // The statistics of engine and workers as JSON (server/stats_json.h). Clients get the same text.
  std::string stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;  // leaked in a forked child
};

}  // namespace service_streamer::ipc
