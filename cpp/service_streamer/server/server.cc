#include "service_streamer/server/server.h"

#include <utility>

#include "service_streamer/server/server_impl.h"

namespace service_streamer::ipc {

Server::Server(Engine& engine, const ServerOptions& options) : impl_(std::make_unique<Impl>(engine, options)) {}

// A forked child has no copy of the thread, and a mutex may be locked there forever. So the child leaks the Impl.
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

void Server::stop() {
  impl_->stop();
}

void Server::configure(const EngineChange& change) {
  impl_->configure(change);
}

void Server::set_workers(int workers) {
  impl_->set_workers(workers);
}

std::uint32_t Server::add_worker(FileDescriptor socket, pid_t pid, std::string setup, std::uint32_t place) {
  return impl_->add_worker(std::move(socket), pid, std::move(setup), place);
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

Completion::Wait Server::wait(const WorkerWake& worker, Request& request, Waiter& waiter, TimePoint deadline) noexcept {
  return impl_->wait(worker, request, waiter, deadline);
}

std::vector<WorkerReport> Server::workers() const {
  return impl_->workers();
}

std::string Server::stats() const {
  return impl_->stats();
}

}  // namespace service_streamer::ipc
