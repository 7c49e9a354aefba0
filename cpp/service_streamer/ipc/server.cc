#include "service_streamer/ipc/server.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

#include "service_streamer/base/mutex.h"
#include "service_streamer/ipc/address.h"
#include "service_streamer/ipc/call.h"
#include "service_streamer/ipc/clients.h"
#include "service_streamer/ipc/failure.h"
#include "service_streamer/ipc/io_thread.h"
#include "service_streamer/ipc/poller.h"
#include "service_streamer/ipc/stats_json.h"
#include "service_streamer/ipc/worker_events.h"
#include "service_streamer/ipc/worker_pool.h"

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
  bool take_orders() REQUIRES(turn_) EXCLUDES(mutex_);
  TimePoint expire() REQUIRES(turn_);
  void clean_up() REQUIRES(turn_) EXCLUDES(mutex_);

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

  // What other threads want of the IO thread.
  Mutex mutex_;
  std::vector<NewWorker> new_workers_ GUARDED_BY(mutex_);
  std::vector<std::uint32_t> retiring_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  Mutex life_;  // taken before mutex_
  bool stopped_ GUARDED_BY(life_) = false;
  std::thread thread_ GUARDED_BY(life_);
};

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
  if (!thread_.joinable()) {
    const MutexLock turn(turn_);
    return clean_up();
  }
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
  clean_up();
  turn_.unlock();
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
  workers_.stop();
  clients_.stop();
  MutexLock lock(mutex_);
  stopping_ = true;
  new_workers_.clear();
}

// --- the face ---

Server::Server(Engine& engine, const ServerOptions& options) : impl_(std::make_unique<Impl>(engine, options)) {}

// In a forked child the thread is not there, and whatever it held is held for ever.
Server::~Server() {
  if (impl_->from_this_process()) return;
  [[maybe_unused]] const Impl* leaked = impl_.release();
}

const std::string& Server::address() const {
  return impl_->address();
}

void Server::start() {
  impl_->start();
}

void Server::wake(Waiter& waiter) noexcept {
  impl_->wake(waiter);
}

void Server::stop() {
  impl_->stop();
}

std::uint32_t Server::add_worker(FileDescriptor socket, pid_t pid, std::string setup) {
  return impl_->add_worker(std::move(socket), pid, std::move(setup));
}

void Server::retire_worker(std::uint32_t id) {
  impl_->retire_worker(id);
}

std::optional<Server::Event> Server::next_event(Waiter& waiter, TimePoint deadline) {
  return impl_->events().next(waiter, deadline);
}

void Server::interrupt() {
  impl_->events().interrupt();
}

void Server::set_failure(std::optional<std::string> note) {
  impl_->set_failure(std::move(note));
}

void Server::check_failure(Request& request) {
  impl_->check_failure(request);
}

std::vector<WorkerReport> Server::workers() const {
  return impl_->workers();
}

std::string Server::stats() const {
  return impl_->stats();
}

}  // namespace service_streamer::ipc
