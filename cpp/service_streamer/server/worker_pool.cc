#include "service_streamer/server/worker_pool.h"

#include <sys/epoll.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "service_streamer/calls/serialized_call.h"
#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {
namespace {

constexpr Duration kForEver = std::chrono::hours(24 * 365 * 100);  // longer ones could not be added to a time

Bytes bytes_of(std::string text) {
  const auto kept = std::make_shared<const std::string>(std::move(text));
  const auto* data = reinterpret_cast<const std::byte*>(kept->data());
  return {std::shared_ptr<const std::byte[]>(kept, data), data, kept->size()};
}

}  // namespace

WorkerPool::WorkerPool(Engine& engine, Poller& poller, WorkerEvents& events, const ServerOptions& options)
    : engine_(engine),
      poller_(poller),
      events_(events),
      retries_allowed_(options.retries),
      hang_timeout_(options.hang_timeout < kForEver ? options.hang_timeout : Duration::zero()) {}

WorkerPool::~WorkerPool() = default;

WorkerPool::Worker::Worker(Poller& poller, std::uint32_t its_id, FileDescriptor socket, pid_t pid)
    : id(its_id),
      peer(poller, kKeys + 2 * std::uint64_t{id}, std::move(socket)),
      process(poller, kKeys + 2 * std::uint64_t{id} + 1, pid),
      idle(poller.waiter()),
      figures(std::make_shared<WorkerStats>(id, pid)) {}

void WorkerPool::add(std::uint32_t id, FileDescriptor socket, pid_t pid, std::string setup) {
  std::unique_ptr<Worker> worker;
  try {
    worker = std::make_unique<Worker>(poller_, id, std::move(socket), pid);
  } catch (const std::system_error&) {  // no room in epoll: its socket is closed, so it goes
    events_.post({.kind = Server::Event::Kind::kGone, .worker = id, .text = {}});
    return;
  }
  worker->peer.send(make_hello(Role::kEngine));
  worker->peer.send(make_opaque(MessageType::kSetup, 0, bytes_of(std::move(setup))));
  deaths_ |= worker->peer.broken();
  {
    MutexLock lock(mutex_);
    figures_[id] = worker->figures;
  }
  workers_[id] = std::move(worker);
}

void WorkerPool::retire(std::uint32_t id) {
  Worker* worker = find(id);
  if (worker == nullptr || worker->retiring) return;
  take_from(*worker);
  worker->retiring = true;
  worker->figures->is_retiring();
  events_.post({.kind = Server::Event::Kind::kRetired, .worker = id, .text = {}});
  if (!worker->flight) worker->peer.end_sending();
}

void WorkerPool::handle(const Poller::Event& event) {
  Worker* worker = find(static_cast<std::uint32_t>((event.key - kKeys) / 2));
  if (worker == nullptr) return;
  const bool died = event.key % 2 == 1;
  if (!died && (event.events & EPOLLOUT) != 0) worker->peer.flush();
  receive(*worker);
  if (died) worker->peer.set_broken();
  deaths_ |= worker->peer.broken();
}

WorkerPool::Worker* WorkerPool::find(std::uint32_t id) const {
  const auto found = workers_.find(id);
  return found != workers_.end() ? found->second.get() : nullptr;
}

void WorkerPool::receive(Worker& worker) {
  for (InMessage message; worker.peer.receive(message);) {
    worker.peer.attempt([&] {
      if (!understand(worker, message)) worker.peer.set_broken();
    });
  }
}

// False: not what a worker says, or not now.
bool WorkerPool::understand(Worker& worker, InMessage& message) {
  if (!worker.heard_hello) {
    Hello hello;
    worker.heard_hello = true;
    return message.type == MessageType::kHello && parse(message, hello) && hello.version == kProtocolVersion &&
           hello.role == Role::kWorker;
  }
  switch (message.type) {
    case MessageType::kReady:
      if (std::exchange(worker.ready, true)) return false;
      if (!worker.retiring) worker.figures->became_ready(std::string(message.body.text()));
      events_.post(
          {.kind = Server::Event::Kind::kReady, .worker = worker.id, .text = std::string(message.body.text())});
      return true;
    case MessageType::kInitFailed:
      if (worker.ready) return false;
      events_.post(
          {.kind = Server::Event::Kind::kInitFailed, .worker = worker.id, .text = std::string(message.body.text())});
      return true;
    case MessageType::kReply:
      return answered(worker, message);
    default:
      return false;
  }
}

bool WorkerPool::answered(Worker& worker, InMessage& message) {
  if (!worker.flight || message.id != worker.flight->id) return false;
  if (message.unread > 0) {
    end(*std::exchange(worker.flight, nullptr), Outcome::kLost,
        "there was no memory for an answer of " + std::to_string(message.unread) + " bytes");
    give(worker);
  } else {
    ReplyMessage reply;
    if (!parse(message, reply)) return false;
    if (reply.unread && halve(worker)) {
      give(worker);
    } else if (!complete(worker, reply)) {
      return false;
    }
  }
  if (worker.retiring) worker.peer.end_sending();
  return true;
}

// False: that is no answer to its batch.
bool WorkerPool::complete(Worker& worker, ReplyMessage& reply) {
  std::vector<RequestRange>& parts = worker.flight->batch.parts;
  if (reply.results.size() != parts.size()) return false;
  const auto postponed = [&](std::size_t i) { return reply.results[i].kind == ResultKind::kPostponed; };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (postponed(i) && (!parts[i].whole() || parts.size() == 1)) return false;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    RequestRange& part = parts[i];
    part.postponed = postponed(i);
    if (part.postponed) continue;
    part.failed = reply.results[i].kind == ResultKind::kError;
    SerializedCall::of(*part.request)
        .add({.begin = part.begin, .count = part.count, .result = std::move(reply.results[i])});
  }
  const std::unique_ptr<Flight> flight = std::move(worker.flight);
  worker.figures->answered(flight->batch.items, reply, Clock::now() - flight->sent);
  flight->batch.isolated = reply.isolated;
  EndedRequests ended;
  ReleasedRequests released;
  engine_.complete(flight->batch, Outcome::kAnswered, ended, released);
  worker.peer.attempt([&] { give(worker); });  // before anybody is woken: it can begin meanwhile
  publish(ended);
  let_go(released);
  return true;
}

// --- the end of a worker ---

void WorkerPool::kill_hung(TimePoint now) {
  if (hang_timeout_ <= Duration::zero()) return;
  for (const auto& [id, worker] : workers_) {
    if (!worker->flight || worker->killed_hung || now < worker->flight->sent + hang_timeout_) continue;
    worker->killed_hung = true;
    worker->process.kill();
  }
}

void WorkerPool::bury_dead() {
  if (!std::exchange(deaths_, false)) return;
  for (auto next = workers_.begin(); next != workers_.end();) {
    if (!next->second->peer.broken()) {
      ++next;
      continue;
    }
    receive(*next->second);  // its last reply counts
    const std::unique_ptr<Worker> worker = std::move(next->second);
    next = workers_.erase(next);
    take_from(*worker);
    const bool had_batch = worker->flight != nullptr;
    if (had_batch) {
      const int attempts = worker->flight->attempts;
      if (attempts <= retries_allowed_) {
        retries_.push_back(std::move(worker->flight));
      } else {
        const std::string how = worker->killed_hung ? "hung with the batch and was killed" : "died with the batch";
        end(*worker->flight, Outcome::kLost,
            "worker process " + std::to_string(worker->process.pid()) + " " + how + " (attempt " +
                std::to_string(attempts) + " of " + std::to_string(retries_allowed_ + 1) + ")");
      }
    }
    {
      MutexLock lock(mutex_);
      figures_.erase(worker->id);
    }
    events_.post({.kind = Server::Event::Kind::kGone,
                  .worker = worker->id,
                  .text = {},
                  .had_batch = had_batch,
                  .killed_hung = worker->killed_hung});
  }
}

// The engine counts on it no longer.
void WorkerPool::take_from(Worker& worker) {
  engine_.stop_waiting(worker.idle);
  worker.asked = false;
  worker.until = TimePoint::max();
}

void WorkerPool::end(Flight& flight, Outcome outcome, const std::string& note) {
  EndedRequests ended;
  ReleasedRequests released;
  engine_.complete(flight.batch, outcome, ended, released);
  for (Request* request = ended.first; request != nullptr; request = request->next_ended) {
    SerializedCall::of(*request).note = note;
  }
  publish(ended);
  let_go(released);
}

void WorkerPool::stop() {
  for (const auto& [id, worker] : workers_) {
    take_from(*worker);
    if (worker->flight) retries_.push_back(std::move(worker->flight));
  }
  workers_.clear();
  for (const auto& flight : std::exchange(retries_, {})) end(*flight, Outcome::kClosed, {});
  MutexLock lock(mutex_);
  figures_.clear();
}

// --- what others ask ---

bool WorkerPool::any_ready() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& entry) { return entry.second->ready && !entry.second->retiring; });
}

std::vector<WorkerReport> WorkerPool::reports() const {
  std::vector<std::shared_ptr<WorkerStats>> figures;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, worker] : figures_) figures.push_back(worker);
  }
  std::vector<WorkerReport> reports;
  reports.reserve(figures.size());
  for (const auto& worker : figures) reports.push_back(worker->report());
  return reports;
}

}  // namespace service_streamer::ipc
