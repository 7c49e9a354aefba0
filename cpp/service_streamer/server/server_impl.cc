#include "service_streamer/server/server_impl.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include "service_streamer/base/random_id.h"
#include "service_streamer/calls/serialized_call.h"
#include "service_streamer/transport/address.h"
#include "service_streamer/waiting/io_thread.h"

namespace service_streamer::ipc {
namespace {

// The random number makes the name unique when a pid is reused.
std::string unique_address() {
  return "@service_streamer-" + std::to_string(getpid()) + "-" + random_id();
}

// For the engine each place of a worker is a worker.
int workers_of(int workers, std::size_t places) {
  int product;
  return __builtin_mul_overflow(workers, places, &product) ? std::numeric_limits<int>::max() : product;
}

}  // namespace

Server::Impl::Impl(Engine& engine, const ServerOptions& options)
    : engine_(engine),
      address_(options.address.empty() ? unique_address() : options.address),
      availability_(engine),
      workers_(engine, poller_, events_, options),
      clients_(engine, poller_, events_,
               {.availability = availability_,
                .any_ready = [this] { return workers_.any_ready(); },
                .configure = [this](const EngineChange& change) { configure(change); },
                .stats = [this] { return stats(); }},
               listen_on(address_)),
      worker_num_(engine.options().workers / std::max(static_cast<int>(options.places), 1)) {}

void Server::Impl::start() {
  MutexLock lock(life_);
  if (stopped_ || thread_.joinable()) return;
  thread_ = start_io_thread("streamer-server", [this] { run(); });
}

void Server::Impl::stop() {
  MutexLock lock(life_);
  if (std::exchange(stopped_, true)) return;
  if (!thread_.joinable()) return shut_down();
  {
    MutexLock request_lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

void Server::Impl::configure(const EngineChange& change) {
  MutexLock lock(settings_);
  if (workers_.places() == 0) return engine_.configure(change);
  if (!change.batch_size) return;
  engine_.set_workers(workers_of(worker_num_, *change.batch_size));
  workers_.set_places(*change.batch_size);
  wake();
}

void Server::Impl::set_workers(int workers) {
  MutexLock lock(settings_);
  engine_.set_workers(workers_of(workers, std::max<std::size_t>(workers_.places(), 1)));
  worker_num_ = workers;
}

std::uint32_t Server::Impl::add_worker(FileDescriptor socket, pid_t pid, std::string setup, std::uint32_t place) {
  const std::uint32_t id = 1 + last_worker_.fetch_add(1, std::memory_order_relaxed);
  {
    MutexLock lock(mutex_);
    if (stopping_) return id;  // the socket is closed, so the worker ends
    new_workers_.push_back(
        {.id = id, .socket = std::move(socket), .pid = pid, .setup = std::move(setup), .place = place});
  }
  wake();
  return id;
}

void Server::Impl::retire_worker(std::uint32_t id) {
  {
    MutexLock lock(mutex_);
    retiring_.push_back(id);
  }
  wake();
}

void Server::Impl::set_failure(std::optional<std::string> note) {
  availability_.set(std::move(note));
  wake();  // the IO thread replies to kWaitReady queries, and drops batches that have ended
}

// --- the IO thread ---

void Server::Impl::run() {
  turn_.lock();
  clients_.start();
  TimePoint deadline = TimePoint::min();
  bool engine_changed = true;
  while (!engine_changed || apply_requests()) {
    if (engine_changed) deadline = calls::expire(engine_, poller_.waiter());
    TimePoint until = std::min(workers_.serve(engine_changed), deadline);
    if (clients_.serve()) until = TimePoint::min();
    sleeps_until_ = until;
    turn_.unlock();
    const auto events = poller_.sleep(until, engine_changed);
    turn_.lock();
    for (const Poller::Event& event : events) {
      if (event.key >= WorkerPool::kKeys) {
        workers_.handle(event);
      } else {
        clients_.handle(event);
      }
    }
    // Events can take long, and the engine may have woken the thread meanwhile.
    engine_changed |= poller_.take_wake() || Clock::now() >= until;
  }
  turn_.unlock();
  shut_down();
}

// --- a calling thread that receives its reply itself ---

Completion::Wait Server::Impl::wait(const WorkerWake& worker, Request& request, Waiter& waiter,
                                    TimePoint deadline) noexcept {
  int event = -1;
  Waiter* caller = nullptr;  // only now, so that a closed server has no descriptor for it
  try {
    if (worker.waiter == &poller_.waiter()) caller = &WaiterPool::acquire_with_event(event);
  } catch (const std::system_error&) {
    caller = nullptr;  // no descriptor is left
  }
  std::optional<WorkerPool::Reading> reading;
  if (caller != nullptr) {
    reading = begin_reading(worker, request);
  } else {
    worker.run();
  }
  std::optional<Completion::Wait> end;
  if (reading) {
    const auto sleep = [&](TimePoint until) {
      bool readable = false;
      const Parker::Wake wake = caller->parker.park(until, reading ? reading->connection->fd() : -1, readable);
      if (readable && !receive(*reading)) reading.reset();
      return wake;
    };
    end = request.completion.wait_by(*caller, deadline, false, sleep);
    end_reading(*caller, reading);
  }
  if (caller != nullptr) WaiterPool::release_with_event(*caller);
  return end ? *end : request.completion.wait(waiter, deadline);
}

// Gives the request to a worker. nullopt: the IO thread does so, or receives the reply.
std::optional<WorkerPool::Reading> Server::Impl::begin_reading(const WorkerWake& worker, const Request& request) {
  if (!turn_.try_lock()) {
    worker.run();
    return std::nullopt;
  }
  std::optional<WorkerPool::Reading> reading;
  TimePoint next;
  if (read_by_caller_) {
    next = workers_.serve(true);
  } else {
    reading = workers_.serve_lone(request, next);
  }
  read_by_caller_ |= reading.has_value();
  const bool sleeps_too_long = next < sleeps_until_;
  turn_.unlock();
  if (sleeps_too_long) wake();
  return reading;
}

// Does what the IO thread would do if the worker's socket is readable. False: there is no more to wait for there.
bool Server::Impl::receive(const WorkerPool::Reading& reading) {
  turn_.lock();
  const bool goes_on = workers_.receive(reading);
  const bool sleeps_too_long = workers_.serve(false) < sleeps_until_;
  turn_.unlock();
  if (sleeps_too_long) wake();
  return goes_on;
}

void Server::Impl::end_reading(Waiter& caller, const std::optional<WorkerPool::Reading>& reading) {
  {
    const ForkLock no_fork;
    WakeQueue::instance().leave(caller);
  }
  MutexLock turn(turn_);
  if (reading) workers_.end_reading(*reading);
  read_by_caller_ = false;
}

// Applies what other threads have asked for. False: stop() was called.
bool Server::Impl::apply_requests() {
  std::vector<NewWorker> new_workers;
  std::vector<std::uint32_t> retiring;
  {
    MutexLock lock(mutex_);
    if (stopping_) return false;
    new_workers = std::exchange(new_workers_, {});
    retiring = std::exchange(retiring_, {});
  }
  for (NewWorker& worker : new_workers) {
    workers_.add(worker.id, std::move(worker.socket), worker.pid, std::move(worker.setup), worker.place);
  }
  for (const std::uint32_t id : retiring) workers_.retire(id);
  return true;
}

void Server::Impl::shut_down() {
  // From here on the engine must not count on this thread for deadlines.
  engine_.deadline_timer().stop_watching(poller_.waiter());
  if (!address_.starts_with('@')) unlink(address_.c_str());
  {
    MutexLock turn(turn_);
    workers_.stop();
  }
  clients_.stop();  // without the turn: it waits for clients that do not read
  poller_.close();
  MutexLock lock(mutex_);
  stopping_ = true;
  new_workers_.clear();
}

}  // namespace service_streamer::ipc
