#include "service_streamer/client/client_link.h"

#include <utility>

#include "service_streamer/client/client_link_impl.h"

namespace service_streamer::ipc {
namespace {

std::uint64_t id_of(const Request& request) {
  return static_cast<const LocalCall&>(static_cast<const SerializedCall::Node&>(request).call).forwarded_as();
}

}  // namespace

ClientLink::ClientLink(Engine& engine, std::string address, const ClientLinkOptions& options)
    : impl_(std::make_unique<Impl>(engine, std::move(address), options)) {}

// A forked child has no copy of the thread, and a mutex may be locked there forever. So the child leaks the Impl.
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

std::string ClientLink::connect_error() const {
  return impl_->connect_error();
}

Completion::Wait ClientLink::cancel(Request& request, QueryReply& reply, Waiter& waiter, TimePoint deadline) {
  const std::uint64_t id = id_of(request);
  reply = {};
  if (id == 0) return Completion::Wait::kDone;  // not forwarded yet, or the server did not accept it
  return impl_->pending_queries().query({.kind = QueryKind::kCancel, .request = id, .change = {}}, reply, waiter,
                                        deadline);
}

Completion::Wait ClientLink::running(const Request& request, QueryReply& reply, Waiter& waiter, TimePoint deadline) {
  const std::uint64_t id = id_of(request);
  reply = {};
  if (id == 0) return Completion::Wait::kDone;
  return impl_->pending_queries().query({.kind = QueryKind::kRunning, .request = id, .change = {}}, reply, waiter,
                                        deadline);
}

Completion::Wait ClientLink::stats(QueryReply& reply, Waiter& waiter, TimePoint deadline) {
  return impl_->pending_queries().query({.kind = QueryKind::kStats, .request = 0, .change = {}}, reply, waiter,
                                        deadline);
}

Completion::Wait ClientLink::configure(const EngineChange& change, QueryReply& reply, Waiter& waiter,
                                       TimePoint deadline) {
  change.applied_to({});  // throws if a value is invalid
  return impl_->pending_queries().query({.kind = QueryKind::kConfigure, .request = 0, .change = change}, reply, waiter,
                                        deadline);
}

Completion::Wait ClientLink::start_recording(const Recording& recording, QueryReply& reply, Waiter& waiter,
                                             TimePoint deadline) {
  return impl_->pending_queries().query({.kind = QueryKind::kStartRecording,
                                         .request = 0,
                                         .change = {},
                                         .limit = recording.limit,
                                         .max_events = recording.max_events},
                                        reply, waiter, deadline);
}

Completion::Wait ClientLink::finish_recording(QueryReply& reply, Waiter& waiter, TimePoint deadline) {
  return impl_->pending_queries().query({.kind = QueryKind::kFinishRecording, .request = 0, .change = {}}, reply,
                                        waiter, deadline);
}

Completion::Wait ClientLink::wait_ready(QueryReply& reply, Waiter& waiter, TimePoint deadline) {
  return impl_->pending_queries().query({.kind = QueryKind::kWaitReady, .request = 0, .change = {}}, reply, waiter,
                                        deadline);
}

}  // namespace service_streamer::ipc
