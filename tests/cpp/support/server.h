#pragma once

// An engine with its Server; workers and callers as threads instead of processes. Items are ints, and the model adds 1.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "service_streamer/calls/serialized_call.h"
#include "service_streamer/client/client_link.h"
#include "service_streamer/server/server.h"
#include "service_streamer/transport/connection.h"
#include "service_streamer/worker/worker_link.h"
#include "support/sockets.h"
#include "support/threads.h"

namespace service_streamer::support {

using ipc::LocalCall;
using ipc::Server;

inline ipc::Bytes bytes_of(const std::vector<int>& numbers) {
  std::byte* data = nullptr;
  ipc::Bytes bytes = ipc::Bytes::allocate(numbers.size() * sizeof(int), data);
  if (!numbers.empty()) std::memcpy(data, numbers.data(), bytes.size());
  return bytes;
}

inline std::vector<int> numbers_of(const ipc::Bytes& bytes) {
  std::vector<int> numbers(bytes.size() / sizeof(int));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(int));
  return numbers;
}

inline ipc::Payload payload_of(const std::vector<int>& items) {
  ipc::Payload payload;
  payload.bytes = bytes_of(items);
  for (std::size_t i = 1; i <= items.size(); ++i) payload.ends.push_back(i * sizeof(int));
  return payload;
}

// A caller's reference to a request.
class RemoteRequest {
 public:
  explicit RemoteRequest(std::vector<int> items, const Terms& terms = {})
      : call_(new LocalCall), items_(std::move(items)) {
    call_->request.size = static_cast<std::uint32_t>(items_.size());
    call_->request.priority = terms.priority;
    call_->request.deadline = terms.deadline;
    call_->request.watched = terms.watched;
    call_->request.context = terms.context;
    call_->payload = payload_of(items_);
  }
  ~RemoteRequest() {
    if (call_ != nullptr) call_->unref();
  }
  RemoteRequest(RemoteRequest&& other) noexcept
      : call_(std::exchange(other.call_, nullptr)), items_(std::move(other.items_)) {}
  RemoteRequest& operator=(RemoteRequest&&) = delete;

  LocalCall& call() const { return *call_; }
  Request& request() const { return call_->request; }

  // With a server, also calls its check_failure().
  bool submit(Engine& engine, Server* server = nullptr, WorkerWake* later = nullptr) const {
    call_->ref();
    const Engine::Admission admission = engine.submit(call_->request, later);
    if (admission == Engine::Admission::kFull || admission == Engine::Admission::kClosed) {
      call_->unref();
      return false;
    }
    if (server != nullptr) server->check_failure(call_->request);
    return true;
  }

  // Submits and waits as predict() does for a lone request; kInterrupted if it was refused.
  Completion::Wait ask(Engine& engine, Server& server, Duration patience = kPatience) const {
    WorkerWake worker;
    if (!submit(engine, &server, &worker)) return Completion::Wait::kInterrupted;
    Sleeping sleeping;
    return server.wait(worker, call_->request, sleeping.waiter(), Clock::now() + patience);
  }

  bool done() const { return call_->request.completion.done(); }
  bool wait(Duration patience = kPatience) const {
    Sleeping sleeping;
    return call_->request.completion.wait(sleeping.waiter(), Clock::now() + patience) == Completion::Wait::kDone;
  }
  bool ends_as(Outcome outcome) const { return wait() && call_->request.outcome == outcome; }
  bool answered() const {
    if (!ends_as(Outcome::kAnswered)) return false;
    std::vector<int> outputs;
    for (const ipc::ResultRange& range : call_->ranges) {
      if (range.begin != outputs.size()) return false;
      const std::vector<int> numbers = numbers_of(range.result.bytes);
      if (numbers.size() != range.count) return false;
      outputs.insert(outputs.end(), numbers.begin(), numbers.end());
    }
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (i >= outputs.size() || outputs[i] != items_[i] + 1) return false;
    }
    return outputs.size() == items_.size();
  }
  bool cancel(Engine& engine, bool even_if_running = false) const {
    EndedRequests ended;
    const bool ends = engine.end_early(call_->request, Outcome::kCancelled, even_if_running, ended);
    ipc::publish(ended);
    return ends;
  }

 private:
  LocalCall* call_;
  const std::vector<int> items_;
};

inline RemoteRequest sent(Engine& engine, std::vector<int> items, const Terms& terms = {}) {
  RemoteRequest request(std::move(items), terms);
  EXPECT_TRUE(request.submit(engine));
  return request;
}

inline void close_remote(Engine& engine, bool drain) {
  EndedRequests ended;
  engine.close(drain, ended);
  ipc::publish(ended);
}

inline void abort_remote(Engine& engine, Outcome outcome = Outcome::kClosed) {
  EndedRequests ended;
  engine.abort(outcome, ended);
  ipc::publish(ended);
}

// Fills the reply to a batch. False: the worker dies instead.
using Model = std::function<bool(const ipc::BatchMessage&, ipc::ReplyMessage&)>;

inline ipc::Result outputs_of(std::vector<int> numbers) {
  for (int& number : numbers) ++number;
  return {.kind = ipc::ResultKind::kOutputs, .bytes = bytes_of(numbers), .blocks = {}};
}

inline bool add_one(const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
  const std::vector<int> items = numbers_of(batch.payload.bytes);
  auto next = items.begin();
  for (const ipc::RangeHead& range : batch.ranges) {
    reply.results.push_back(outputs_of({next, next + range.items}));
    next += range.items;
  }
  return true;
}

// The trace contexts of a batch, by range; "" for none.
inline std::vector<std::string> contexts_of(const ipc::BatchMessage& batch) {
  std::vector<std::string> contexts;
  for (const ipc::RangeHead& range : batch.ranges) contexts.push_back(range.context ? *range.context : "");
  return contexts;
}

// A worker process as a thread.
class FakeWorker {
 public:
  explicit FakeWorker(FileDescriptor socket, Model model = add_one, bool becomes_ready = true)
      : socket_(std::move(socket)),
        model_(std::move(model)),
        becomes_ready_(becomes_ready),
        thread_([this] { run(); }) {}

  bool finished() const { return thread_.finished(); }
  int batches() const { return batches_; }
  std::string setup() const { return setup_; }  // valid once finished()

 private:
  // The link is closed at the end, as when the process ends.
  void run() {
    using ReceiveStatus = ipc::WorkerLink::ReceiveStatus;
    ipc::WorkerLink link(std::move(socket_));
    ipc::Bytes setup;
    if (link.receive_setup(setup) != ReceiveStatus::kReceived) return;
    setup_ = std::string(setup.text());
    if (!becomes_ready_) {
      link.send_init_failed("no model");
      return;
    }
    link.send_ready("{}");
    std::uint64_t id = 0;
    ipc::BatchMessage batch;
    while (link.next_batch(id, batch) == ReceiveStatus::kReceived) {
      ipc::ReplyMessage reply;
      ++batches_;
      if (!model_(batch, reply) || !link.reply(id, reply)) return;
    }
  }

  FileDescriptor socket_;
  const Model model_;
  const bool becomes_ready_;
  std::atomic<int> batches_{0};
  std::string setup_;
  Thread thread_;
};

constexpr EngineOptions kServed{.batch_size = 8, .policy = PolicyKind::kGreedy, .workers = 2};

// An engine with its Server, and the events of the supervisor.
class Owner {
 public:
  explicit Owner(const EngineOptions& options = kServed, const ipc::ServerOptions& server_options = {})
      : engine(options), server(std::make_unique<Server>(engine, server_options)) {
    server->start();
  }
  ~Owner() {
    close_remote(engine, false);
    if (server) server->stop();
    abort_remote(engine);
    workers.clear();
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  std::uint32_t add(Model model = add_one, bool becomes_ready = true) {
    auto [ours, its] = ipc::socket_pair();
    workers.push_back(std::make_unique<FakeWorker>(std::move(its), std::move(model), becomes_ready));
    return server->add_worker(std::move(ours), 0, "setup");
  }
  std::optional<Server::Event> next_event(Duration patience = kPatience) {
    Sleeping sleeping;
    return server->next_event(sleeping.waiter(), Clock::now() + patience);
  }
  // The next event about a worker.
  bool next_is(Server::Event::Kind kind, std::uint32_t worker) {
    std::optional<Server::Event> event = next_event();
    while (event && event->worker == 0) event = next_event();  // about a client
    return event && event->kind == kind && event->worker == worker;
  }
  std::uint32_t add_ready(Model model = add_one) {
    const std::uint32_t id = add(std::move(model));
    EXPECT_TRUE(next_is(Server::Event::Kind::kReady, id));
    return id;
  }

  Engine engine;
  std::unique_ptr<Server> server;
  std::vector<std::unique_ptr<FakeWorker>> workers;
};

// Returns a line of the IO thread's status file in /proc.
inline std::string io_thread(const std::string& key) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "streamer-server") continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(key)) return line;
    }
  }
  return {};
}

inline bool io_thread_sleeps() {
  return io_thread("State:").find("sleeping") != std::string::npos;
}

// Blocks models until it is opened. Models may outlive it.
class Gate {
 public:
  Model before(Model model = add_one) {
    return [state = state_, model = std::move(model)](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
      ++state->entered;
      return eventually([&] { return state->open.load(); }) && model(batch, reply);
    };
  }
  bool entered(int times = 1) const {
    return eventually([this, times] { return state_->entered >= times; });
  }
  void open() { state_->open = true; }
  ~Gate() { open(); }

 private:
  struct State {
    std::atomic<int> entered{0};
    std::atomic<bool> open{false};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace service_streamer::support
