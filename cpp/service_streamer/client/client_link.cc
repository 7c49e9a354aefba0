#include "service_streamer/client/client_link.h"

#include <utility>

#include "service_streamer/client/client_link_impl.h"

namespace service_streamer::ipc {
namespace {

std::uint64_t id_of(const Request& request) {
  return static_cast<const LocalCall&>(static_cast<const SerializedCall::Node&>(request).call).forwarded_as();
}

}  // namespace

ClientLink::ClientLink(Engine& engine, std::string address, bool owner_returns)
    : impl_(std::make_unique<Impl>(engine, std::move(address), owner_returns)) {}

// In a forked child the thread is not there, and whatever it held is held for ever.
ClientLink::~ClientLink() {
  if (impl_->from_this_process()) return;
  [[maybe_unused]] const Impl* leaked = impl_.release();
}

void ClientLink::start(bool connect_now) {
  impl_->start(connect_now);
}

void ClientLink::stop() {
  impl_->stop();
}

std::string ClientLink::absence() const {
  return impl_->absence();
}

Completion::Wait ClientLink::cancel(Request& request, QueryReply& reply, Waiter& waiter, TimePoint deadline) {
  const std::uint64_t id = id_of(request);
  reply = {};
  if (id == 0) return Completion::Wait::kDone;  // not sent yet, or not from here
  return impl_->asked().query({.question = QueryKind::kCancel, .request = id, .change = {}}, reply, waiter, deadline);
}

Completion::Wait ClientLink::running(const Request& request, QueryReply& reply, Waiter& waiter, TimePoint deadline) {
  const std::uint64_t id = id_of(request);
  reply = {};
  if (id == 0) return Completion::Wait::kDone;
  return impl_->asked().query({.question = QueryKind::kRunning, .request = id, .change = {}}, reply, waiter, deadline);
}

Completion::Wait ClientLink::stats(QueryReply& reply, Waiter& waiter, TimePoint deadline) {
  return impl_->asked().query({.question = QueryKind::kStats, .request = 0, .change = {}}, reply, waiter, deadline);
}

Completion::Wait ClientLink::configure(const EngineChange& change, QueryReply& reply, Waiter& waiter,
                                       TimePoint deadline) {
  change.applied_to({});  // throws
  return impl_->asked().query({.question = QueryKind::kConfigure, .request = 0, .change = change}, reply, waiter,
                              deadline);
}

Completion::Wait ClientLink::wait_ready(QueryReply& reply, Waiter& waiter, TimePoint deadline) {
  return impl_->asked().query({.question = QueryKind::kWaitReady, .request = 0, .change = {}}, reply, waiter, deadline);
}

}  // namespace service_streamer::ipc
