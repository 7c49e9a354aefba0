#include "service_streamer/client/client_link.h"

#include <utility>

#include "service_streamer/client/client_link_impl.h"

namespace service_streamer::ipc {
namespace {

std::uint64_t id_of(const Request& request) {
  return static_cast<const LocalCall&>(static_cast<const Call::Node&>(request).call).handed_on_as();
}

}  // namespace

Relay::Relay(Engine& engine, std::string address, bool owner_returns)
    : impl_(std::make_unique<Impl>(engine, std::move(address), owner_returns)) {}

// In a forked child the thread is not there, and whatever it held is held for ever.
Relay::~Relay() {
  if (impl_->from_this_process()) return;
  [[maybe_unused]] const Impl* leaked = impl_.release();
}

void Relay::start() {
  impl_->start();
}

void Relay::stop() {
  impl_->stop();
}

Completion::Wait Relay::cancel(Request& request, Told& told, Waiter& waiter, TimePoint deadline) {
  const std::uint64_t id = id_of(request);
  told = {};
  if (id == 0) return Completion::Wait::kDone;  // not sent yet, or not from here
  return impl_->asked().ask({.question = Question::kCancel, .request = id, .change = {}}, told, waiter, deadline);
}

Completion::Wait Relay::running(const Request& request, Told& told, Waiter& waiter, TimePoint deadline) {
  const std::uint64_t id = id_of(request);
  told = {};
  if (id == 0) return Completion::Wait::kDone;
  return impl_->asked().ask({.question = Question::kRunning, .request = id, .change = {}}, told, waiter, deadline);
}

Completion::Wait Relay::stats(Told& told, Waiter& waiter, TimePoint deadline) {
  return impl_->asked().ask({.question = Question::kStats, .request = 0, .change = {}}, told, waiter, deadline);
}

Completion::Wait Relay::configure(const EngineChange& change, Told& told, Waiter& waiter, TimePoint deadline) {
  change.applied_to({});  // throws
  return impl_->asked().ask({.question = Question::kConfigure, .request = 0, .change = change}, told, waiter, deadline);
}

Completion::Wait Relay::wait_ready(Told& told, Waiter& waiter, TimePoint deadline) {
  return impl_->asked().ask({.question = Question::kWaitReady, .request = 0, .change = {}}, told, waiter, deadline);
}

}  // namespace service_streamer::ipc
