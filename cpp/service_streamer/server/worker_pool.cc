#include "service_streamer/server/worker_pool.h"

#include <sys/epoll.h>

#include <algorithm>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include "service_streamer/calls/serialized_call.h"
#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {
namespace {

constexpr Duration kMaxHangTimeout = std::chrono::hours(24 * 365 * 100);  // a longer duration could overflow a time

Bytes bytes_of(std::string text) {
  const auto kept = std::make_shared<const std::string>(std::move(text));
  const auto* data = reinterpret_cast<const std::byte*>(kept->data());
  return {std::shared_ptr<const std::byte[]>(kept, data), data, kept->size()};
}

constexpr Duration kCancelInterval = std::chrono::milliseconds(50);  // between two looks for batches to cancel

}  // namespace

WorkerPool::WorkerPool(Engine& engine, Poller& poller, WorkerEvents& events, const ServerOptions& options)
    : engine_(engine),
      limits_(engine.options().queue_options().limits),
      poller_(poller),
      events_(events),
      retries_allowed_(options.retries),
      hang_timeout_(options.hang_timeout < kMaxHangTimeout ? options.hang_timeout : Duration::zero()),
      places_(options.places) {}

WorkerPool::~WorkerPool() = default;

void WorkerPool::add(std::uint32_t id, FileDescriptor socket, pid_t pid, std::string setup, std::uint32_t place) {
  std::unique_ptr<Worker> worker;
  try {
    engine_.add_place(place);
    worker = std::make_unique<Worker>(poller_, id, std::move(socket), pid, place);
  } catch (const std::exception&) {  // epoll failed, or no memory: the socket is closed, so the worker ends
    events_.post({.kind = Server::Event::Kind::kGone, .worker = id, .text = {}});
    return;
  }
  worker->peer.send(make_hello(Role::kEngine));
  worker->peer.send(make_opaque(MessageType::kSetup, 0, bytes_of(std::move(setup))));
  has_broken_ |= worker->peer.broken();
  {
    MutexLock lock(mutex_);  // reports() may run in any thread; workers_ belongs to this one
    stats_[id] = worker->stats;
  }
  workers_[id] = std::move(worker);
}

void WorkerPool::retire(std::uint32_t id) {
  Worker* worker = find(id);
  if (worker == nullptr || worker->retiring) return;
  stop_waiting_for_batch(*worker);
  worker->retiring = true;
  worker->stats->is_retiring();
  events_.post({.kind = Server::Event::Kind::kRetired, .worker = id, .text = {}});
  if (worker->in_flight.empty()) worker->peer.end_sending();  // otherwise after its last reply, by handle_reply()
}

void WorkerPool::handle(const Poller::Event& event) {
  Worker* worker = find(static_cast<std::uint32_t>((event.key - kKeys) / 2));
  if (worker == nullptr) return;
  const bool died = event.key % 2 == 1;
  if (!died && (event.events & EPOLLOUT) != 0) worker->peer.flush();
  receive(*worker);
  if (died) worker->peer.set_broken();
  has_broken_ |= worker->peer.broken();
}

TimePoint WorkerPool::serve(bool engine_changed) {
  // Sending a batch may show that its worker is dead. The batch then goes to another worker in the same call.
  for (;; engine_changed = false) {
    remove_broken();
    if (engine_changed) drop_ended_retries();
    for (const auto& [id, worker] : workers_) {
      worker->peer.flush_releases();
      tell_places(*worker);
      if (engine_changed || !worker->waiting || !retries_.empty()) give_batch(*worker);
      has_broken_ |= worker->peer.broken();
    }
    if (!has_broken_) break;
  }
  const TimePoint now = Clock::now();
  kill_hung(now);
  TimePoint next = TimePoint::max();
  for (const auto& [id, worker] : workers_) {
    if (worker->waiting) next = std::min(next, worker->until);
    if (worker->in_flight.empty()) continue;
    if (!worker->killed_hung && hang_timeout_ > Duration::zero()) {
      next = std::min(next, worker->in_flight.front()->sent + hang_timeout_);
    }
    if (places() > 0) {
      cancel_ended(*worker);
      next = std::min(next, now + kCancelInterval);
    }
  }
  return next;
}

std::optional<WorkerPool::Reading> WorkerPool::serve_lone(const Request& request, TimePoint& next) {
  lone_ = &request;
  next = serve(true);
  lone_ = nullptr;
  for (const auto& [id, worker] : workers_) {
    if (worker->has_alone(request))
      return Reading{.request = &request, .worker = id, .connection = worker->peer.connection()};
  }
  return std::nullopt;
}

bool WorkerPool::receive(const Reading& reading) {
  Worker* worker = find(reading.worker);
  if (worker == nullptr) return false;
  receive(*worker);
  has_broken_ |= worker->peer.broken();
  return !worker->peer.broken() && worker->has_alone(*reading.request);
}

void WorkerPool::end_reading(const Reading& reading) {
  if (Worker* worker = find(reading.worker)) worker->peer.read(true);
}

bool WorkerPool::any_ready() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& entry) { return entry.second->ready && !entry.second->retiring; });
}

void WorkerPool::stop() {
  for (const auto& [id, worker] : workers_) {
    stop_waiting_for_batch(*worker);
    for (auto& in_flight : worker->in_flight) retries_.push_back(std::move(in_flight));
  }
  workers_.clear();
  for (const auto& in_flight : std::exchange(retries_, {})) end(*in_flight, Outcome::kClosed, {});
  MutexLock lock(mutex_);
  stats_.clear();
}

std::vector<WorkerReport> WorkerPool::reports() const {
  std::vector<std::shared_ptr<WorkerStats>> stats;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, worker] : stats_) stats.push_back(worker);
  }
  std::vector<WorkerReport> reports;
  reports.reserve(stats.size());
  for (const auto& worker : stats) reports.push_back(worker->report());
  return reports;
}

// --- private ---

WorkerPool::Worker::Worker(Poller& poller, std::uint32_t its_id, FileDescriptor socket, pid_t pid,
                           std::uint32_t its_place)
    : id(its_id),
      place(its_place),
      peer(poller, kKeys + 2 * std::uint64_t{id}, std::move(socket)),
      process(poller, kKeys + 2 * std::uint64_t{id} + 1, pid),
      idle(poller.waiter()),
      stats(std::make_shared<WorkerStats>(id, pid)) {}

// True if the worker has a batch of this request only.
bool WorkerPool::Worker::has_alone(const Request& request) const {
  return std::ranges::any_of(in_flight, [&](const auto& each) { return each->is_alone(request); });
}

WorkerPool::Worker* WorkerPool::find(std::uint32_t id) const {
  const auto found = workers_.find(id);
  return found != workers_.end() ? found->second.get() : nullptr;
}

void WorkerPool::receive(Worker& worker) {
  for (InMessage message; worker.peer.receive(message);) {
    worker.peer.attempt([&] {
      if (!handle_message(worker, message)) worker.peer.set_broken();
    });
  }
}

// False: the message is invalid, or not allowed now.
bool WorkerPool::handle_message(Worker& worker, InMessage& message) {
  if (!worker.received_hello) {
    Hello hello;
    worker.received_hello = true;
    return message.type == MessageType::kHello && parse(message, hello) && hello.version == kProtocolVersion &&
           hello.role == Role::kWorker;
  }
  switch (message.type) {
    case MessageType::kReady:
      if (std::exchange(worker.ready, true)) return false;
      if (!worker.retiring) worker.stats->became_ready(std::string(message.body.text()));
      events_.post(
          {.kind = Server::Event::Kind::kReady, .worker = worker.id, .text = std::string(message.body.text())});
      return true;
    case MessageType::kInitFailed:
      if (worker.ready) return false;
      events_.post(
          {.kind = Server::Event::Kind::kInitFailed, .worker = worker.id, .text = std::string(message.body.text())});
      return true;
    case MessageType::kReply:
      return handle_reply(worker, message);
    case MessageType::kPaused:
      worker.paused = message.id;
      give_batch(worker);
      return true;
    default:
      return false;
  }
}

bool WorkerPool::handle_reply(Worker& worker, InMessage& message) {
  const auto found = std::ranges::find(worker.in_flight, message.id, [](const auto& each) { return each->id; });
  if (found == worker.in_flight.end()) return false;
  std::unique_ptr<InFlightBatch> in_flight = std::move(*found);
  worker.in_flight.erase(found);
  worker.peer.read(true);  // the reply that a calling thread may have waited for is here
  if (message.dropped_bytes > 0) {
    end(*in_flight, Outcome::kLost,
        "there was no memory for an answer of " + std::to_string(message.dropped_bytes) + " bytes");
    give_batch(worker);
  } else {
    ReplyMessage reply;
    const bool valid = parse(message, reply);
    if (valid && reply.out_of_memory && retry_in_halves(in_flight)) {
      give_batch(worker);
    } else if (!valid || !complete(worker, in_flight, reply)) {
      worker.in_flight.push_back(std::move(in_flight));  // it runs again elsewhere
      return false;
    }
  }
  if (worker.retiring && worker.in_flight.empty()) worker.peer.end_sending();
  return true;
}

// Ends the requests of the batch with the results of the reply. False: the reply does not fit the batch.
bool WorkerPool::complete(Worker& worker, std::unique_ptr<InFlightBatch>& in_flight, ReplyMessage& reply) {
  std::vector<RequestRange>& ranges = in_flight->batch.ranges;
  if (reply.results.size() != ranges.size()) return false;
  if (std::max(reply.memory.failed, reply.memory.passed) > in_flight->batch.items) return false;
  const auto postponed = [&](std::size_t i) { return reply.results[i].kind == ResultKind::kPostponed; };
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    // A request that ran alone would be postponed forever.
    if (postponed(i) && (!ranges[i].whole() || ranges.size() == 1)) return false;
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    RequestRange& range = ranges[i];
    range.postponed = postponed(i);
    if (range.postponed) continue;
    range.failed = reply.results[i].kind == ResultKind::kError;
    SerializedCall::of(*range.request)
        .add({.begin = range.begin, .count = range.count, .result = std::move(reply.results[i])});
  }
  worker.stats->answered(in_flight->batch.items, reply, Clock::now() - in_flight->sent);
  engine_.recorder().record_times(in_flight->batch, reply.decode, reply.predict, reply.encode);
  in_flight->batch.isolated = reply.isolated;
  engine_.learn(in_flight->batch.whole, reply.memory);
  EndedRequests ended;
  ReleasedRequests released;
  engine_.complete(in_flight->batch, Outcome::kAnswered, ended, released);
  worker.peer.attempt([&] { give_batch(worker); });  // before callers are woken, so that the worker starts earlier
  publish(ended, engine_.answers_fast() ? 2 : 1);
  let_go(released);
  return true;
}

// Splits the batch of a worker that had no memory for it, to run its halves. False: the batch has one item only.
bool WorkerPool::retry_in_halves(std::unique_ptr<InFlightBatch>& in_flight) {
  auto first = std::make_unique<InFlightBatch>();
  retries_.reserve(retries_.size() + 2);  // before split(): afterwards nothing may throw
  const BatchCut cut = middle_of(in_flight->batch.ranges);
  if (cut.items == 0) return false;
  engine_.split(in_flight->batch, cut, first->batch);
  first->attempts = --in_flight->attempts;  // the worker did not run it
  retries_.insert(retries_.begin(), std::move(in_flight));
  retries_.insert(retries_.begin(), std::move(first));
  return true;
}

// Gives the worker batches while it is free and one is due. Otherwise the engine counts a free worker as idle.
void WorkerPool::give_batch(Worker& worker) {
  while (worker.free(places())) {
    const ItemWeights live = live_items(worker);
    if (!retries_.empty()) {
      stop_waiting_for_batch(worker);  // the engine may have reserved a new batch for it, which another worker can take
      const RequestRange& first = retries_.front()->batch.ranges.front();
      if (!live.have_room_for(first.request->weight(first.begin), limits_)) return;
      retry_batch(worker);
      continue;
    }
    CloseReason reason{};
    const Engine::Ready ready = engine_.start_waiting(worker.idle, reason, worker.until, live);
    worker.waiting = ready != Engine::Ready::kBatch;
    if (ready == Engine::Ready::kClosed) worker.until = TimePoint::max();
    if (worker.waiting) return;
    auto in_flight = std::make_unique<InFlightBatch>();
    EndedRequests expired;
    const bool any = engine_.cut(in_flight->batch, reason, expired, live, worker.place);
    if (any) send(worker, std::move(in_flight));
    publish(expired);  // after send(): the worker starts before callers are woken
  }
  if (worker.waiting) stop_waiting_for_batch(worker);  // it has fewer places now
}

// Gives the worker the oldest batch that is to be run again. False: all requests of that batch have ended.
bool WorkerPool::retry_batch(Worker& worker) {
  std::unique_ptr<InFlightBatch> in_flight = std::move(retries_.front());
  retries_.erase(retries_.begin());
  if (!drop_ended(*in_flight)) return false;
  send(worker, std::move(in_flight));
  return true;
}

// Of the batches that the worker has; nothing if it works on one at a time.
ItemWeights WorkerPool::live_items(const Worker& worker) const {
  ItemWeights live;
  if (places() == 0) return live;
  for (const auto& in_flight : worker.in_flight) {
    for (const RequestRange& range : in_flight->batch.ranges) live.add(range);
  }
  return live;
}

// The engine must get these batches back even if no worker is left: a caller may wait until all batches have ended.
void WorkerPool::drop_ended_retries() {
  std::erase_if(retries_, [this](const std::unique_ptr<InFlightBatch>& in_flight) { return !drop_ended(*in_flight); });
}

// Removes the requests that have ended. False: none is left, and the engine has the batch back.
bool WorkerPool::drop_ended(InFlightBatch& in_flight) {
  EndedRequests ended;
  ReleasedRequests released;
  engine_.drop_ended(in_flight.batch, ended, released);
  std::erase_if(in_flight.batch.ranges, [](const RequestRange& range) { return range.request == nullptr; });
  publish(ended);
  let_go(released);
  if (!in_flight.batch.ranges.empty()) return true;
  end(in_flight, Outcome::kAnswered, {});
  return false;
}

OutMessage WorkerPool::message_of(const InFlightBatch& in_flight) {
  std::vector<RangeHead> heads;
  std::vector<PayloadRange> items;
  heads.reserve(in_flight.batch.ranges.size());
  items.reserve(in_flight.batch.ranges.size());
  for (const RequestRange& range : in_flight.batch.ranges) {
    const Request& request = *range.request;
    heads.push_back({.items = range.count,
                     .deadline = request.deadline,
                     .whole = range.whole(),
                     .context = request.context,
                     .queue_time = request.taken - request.arrived});
    items.push_back(
        {.payload = &SerializedCall::of(*range.request).payload, .begin = range.begin, .count = range.count});
  }
  return make_batch(in_flight.id, {.reason = in_flight.batch.reason, .age = in_flight.batch.age}, heads, items);
}

void WorkerPool::send(Worker& worker, std::unique_ptr<InFlightBatch> in_flight) {
  in_flight->id = ++last_batch_id_;
  in_flight->cancelled = false;
  in_flight->sent = Clock::now();
  if (in_flight->attempts > 0) in_flight->batch.dispatched = in_flight->sent;
  OutMessage message;
  try {
    message = message_of(*in_flight);
  } catch (const std::bad_alloc&) {
    return end(*in_flight, Outcome::kLost, "there was no memory to send the batch to a worker");
  }
  InFlightBatch& sent = *in_flight;
  sent.batch.whole.place = worker.place;
  ++sent.attempts;
  worker.in_flight.push_back(std::move(in_flight));
  engine_.recorder().record_sent(sent.batch, static_cast<std::uint32_t>(worker.process.pid()));
  if (lone_ != nullptr && sent.is_alone(*lone_)) worker.peer.read(false);  // before there can be a reply
  worker.peer.send(std::move(message));
  if (!worker.peer.broken()) return;
  --sent.attempts;  // the worker was dead before it got the batch
  has_broken_ = true;
}

void WorkerPool::kill_hung(TimePoint now) {
  if (hang_timeout_ <= Duration::zero()) return;
  for (const auto& [id, worker] : workers_) {
    if (worker->in_flight.empty() || worker->killed_hung) continue;
    if (now < worker->in_flight.front()->sent + hang_timeout_) continue;
    worker->killed_hung = true;
    worker->process.kill();
  }
}

void WorkerPool::tell_places(Worker& worker) {
  if (!worker.ready || worker.told_places == places()) return;
  worker.told_places = places();
  worker.peer.send(make_text(MessageType::kPlaces, {}, worker.told_places));
}

// Tells the worker which of its batches have only requests that have ended.
void WorkerPool::cancel_ended(Worker& worker) {
  std::vector<std::uint64_t> ids;
  for (const auto& in_flight : worker.in_flight) {
    if (in_flight->cancelled) continue;
    in_flight->cancelled = std::ranges::all_of(
        in_flight->batch.ranges, [this](const RequestRange& range) { return !engine_.running(*range.request); });
    if (in_flight->cancelled) ids.push_back(in_flight->id);
  }
  if (ids.empty()) return;
  worker.peer.send(make_ids(MessageType::kCancel, ids));
  has_broken_ |= worker.peer.broken();
}

void WorkerPool::remove_broken() {
  if (!std::exchange(has_broken_, false)) return;
  for (auto next = workers_.begin(); next != workers_.end();) {
    if (!next->second->peer.broken()) {
      ++next;
      continue;
    }
    receive(*next->second);  // a reply may have arrived before it died
    const std::unique_ptr<Worker> worker = std::move(next->second);
    next = workers_.erase(next);
    stop_waiting_for_batch(*worker);
    if (worker->ready && !worker->retiring) deaths_.fetch_add(1, std::memory_order_relaxed);
    const bool had_batch = !worker->in_flight.empty();
    for (auto& in_flight : worker->in_flight) lose(*worker, std::move(in_flight));
    {
      MutexLock lock(mutex_);
      stats_.erase(worker->id);
    }
    events_.post({.kind = Server::Event::Kind::kGone,
                  .worker = worker->id,
                  .text = {},
                  .had_batch = had_batch,
                  .killed_hung = worker->killed_hung});
  }
}

// Keeps a batch of a dead worker for another one, or ends its requests.
void WorkerPool::lose(const Worker& worker, std::unique_ptr<InFlightBatch> in_flight) {
  const int attempts = in_flight->attempts;
  if (attempts <= retries_allowed_) {
    engine_.recorder().record_returned(in_flight->batch);
    retries_.push_back(std::move(in_flight));
    return;
  }
  const std::string how = worker.killed_hung ? "hung with the batch and was killed" : "died with the batch";
  end(*in_flight, Outcome::kLost,
      "worker process " + std::to_string(worker.process.pid()) + " " + how + " (attempt " + std::to_string(attempts) +
          " of " + std::to_string(retries_allowed_ + 1) + ")");
}

// A batch that the engine has reserved for this worker goes to another one.
void WorkerPool::stop_waiting_for_batch(Worker& worker) {
  engine_.stop_waiting(worker.idle);
  worker.waiting = false;
  worker.until = TimePoint::max();
}

void WorkerPool::end(InFlightBatch& in_flight, Outcome outcome, const std::string& note) {
  EndedRequests ended;
  ReleasedRequests released;
  engine_.complete(in_flight.batch, outcome, ended, released);
  publish(ended, note);
  let_go(released);
}

}  // namespace service_streamer::ipc
