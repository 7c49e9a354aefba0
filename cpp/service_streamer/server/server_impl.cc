#include "service_streamer/server/server_impl.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "service_streamer/calls/serialized_call.h"
#include "service_streamer/transport/address.h"
#include "service_streamer/waiting/io_thread.h"

namespace service_streamer::ipc {
namespace {

// Nobody else's, also where a process id comes again.
std::string own_address() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    number = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
  return "@service_streamer-" + std::to_string(getpid()) + "-" + std::to_string(number);
}

}  // namespace

Server::Impl::Impl(Engine& engine, const ServerOptions& options)
    : engine_(engine),
      address_(options.address.empty() ? own_address() : options.address),
      failure_(engine),
      workers_(engine, poller_, events_, options),
      clients_(engine, poller_,
               {.failure = failure_,
                .any_ready = [this] { return workers_.any_ready(); },
                .stats = [this] { return stats(); }},
               listen_on(address_)) {}

void Server::Impl::start() {
  MutexLock lock(life_);
  if (stopped_ || thread_.joinable()) return;
  thread_ = start_io_thread("streamer-server", [this] { run(); });
}

void Server::Impl::stop() {
  MutexLock lock(life_);
  if (std::exchange(stopped_, true)) return;
  if (!thread_.joinable()) return clean_up();
  {
    MutexLock orders(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

std::uint32_t Server::Impl::add_worker(FileDescriptor socket, pid_t pid, std::string setup) {
  const std::uint32_t id = 1 + last_worker_.fetch_add(1, std::memory_order_relaxed);
  {
    MutexLock lock(mutex_);
    if (stopping_) return id;  // its socket is closed, so it goes
    new_workers_.push_back({.id = id, .socket = std::move(socket), .pid = pid, .setup = std::move(setup)});
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
  failure_.set(std::move(note));
  wake();  // clients may have asked; batches may have ended that nobody has
}

// --- the IO thread ---

void Server::Impl::run() {
  turn_.lock();
  clients_.start();
  TimePoint deadline = TimePoint::min();
  bool look = true;
  while (!look || take_orders()) {
    if (look) deadline = expire();
    TimePoint until = std::min(workers_.serve(look), deadline);
    if (clients_.serve()) until = TimePoint::min();
    sleeps_until_ = until;
    turn_.unlock();
    const auto events = poller_.sleep(until, look);
    turn_.lock();
    for (const Poller::Event& event : events) {
      if (event.key >= WorkerPool::kKeys) {
        workers_.handle(event);
      } else {
        clients_.handle(event);
      }
    }
    look |= poller_.take_wake() || Clock::now() >= until;
  }
  turn_.unlock();
  clean_up();
}

// Other threads: what the engine has now goes to a worker, unless the IO thread is awake, and will see to it. What throws there ends the
// process here, too: half of a step may have been done.
void Server::Impl::wake(Waiter& waiter) noexcept {
  if (&waiter == &poller_.waiter() && turn_.try_lock()) {
    const bool sleeps_too_long = workers_.serve(true) < sleeps_until_;
    turn_.unlock();
    if (!sleeps_too_long) return;
  }
  waiter.parker.unpark();
}

Completion::Wait Server::Impl::wake_and_wait(Waiter& to_wake, Request& request, Waiter& waiter,
                                             TimePoint deadline) noexcept {
  wake(to_wake);
  std::optional<WorkerPool::Reading> reading = begin_reading(request);
  if (!reading) return engine_.wait_for_end(request, waiter, deadline);
  const Completion::Wait end = request.completion.wait_by(answer_wait_.waiter(), deadline, [&](TimePoint until) {
    bool readable = false;
    const Parker::Wake wake = answer_wait_.sleep(reading ? reading->connection->fd() : -1, until, readable);
    if (readable && reading && !receive(*reading)) reading.reset();
    return wake;
  });
  if (reading) end_reading(*reading);
  somebody_reads_.store(false, std::memory_order_release);
  return end;
}

// Nothing while somebody else reads, or the IO thread is awake: it may be about to read that answer.
std::optional<WorkerPool::Reading> Server::Impl::begin_reading(const Request& request) {
  std::optional<WorkerPool::Reading> reading;
  if (somebody_reads_.exchange(true, std::memory_order_acquire)) return reading;
  if (turn_.try_lock()) {
    reading = workers_.begin_reading(request);
    turn_.unlock();
  }
  if (!reading) somebody_reads_.store(false, std::memory_order_release);
  return reading;
}

// Does with what the worker said what the IO thread would do. False: the reading has ended.
bool Server::Impl::receive(const WorkerPool::Reading& reading) {
  turn_.lock();
  const bool goes_on = workers_.receive(reading);
  const bool sleeps_too_long = workers_.serve(false) < sleeps_until_;
  turn_.unlock();
  if (sleeps_too_long) wake();
  return goes_on;
}

void Server::Impl::end_reading(const WorkerPool::Reading& reading) {
  const MutexLock turn(turn_);
  workers_.end_reading(reading);
}

// False: it is to stop.
bool Server::Impl::take_orders() {
  std::vector<NewWorker> new_workers;
  std::vector<std::uint32_t> retiring;
  {
    MutexLock lock(mutex_);
    if (stopping_) return false;
    new_workers = std::exchange(new_workers_, {});
    retiring = std::exchange(retiring_, {});
  }
  for (NewWorker& worker : new_workers) {
    workers_.add(worker.id, std::move(worker.socket), worker.pid, std::move(worker.setup));
  }
  for (const std::uint32_t id : retiring) workers_.retire(id);
  return true;
}

TimePoint Server::Impl::expire() {
  EndedRequests ended;
  const TimePoint next = engine_.watch_deadlines(poller_.waiter(), ended);
  publish(ended);
  return next;
}

void Server::Impl::clean_up() {
  engine_.stop_watching(poller_.waiter());
  if (!address_.starts_with('@')) unlink(address_.c_str());
  {
    const MutexLock turn(turn_);
    workers_.stop();
  }
  clients_.stop();  // without the turn, for it waits for clients that do not read
  MutexLock lock(mutex_);
  stopping_ = true;
  new_workers_.clear();
}

}  // namespace service_streamer::ipc
