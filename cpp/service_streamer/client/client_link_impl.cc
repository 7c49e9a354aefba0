#include "service_streamer/client/client_link_impl.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <system_error>
#include <utility>

#include "service_streamer/transport/address.h"
#include "service_streamer/waiting/io_thread.h"

namespace service_streamer::ipc {
namespace {

constexpr std::uint64_t kServerKey = 0;
constexpr std::size_t kItemsAtOnce = 1024;                // in one message; the last request may exceed it
constexpr std::size_t kMaxUnsent = std::size_t{1} << 20;  // bytes; beyond that, requests wait in the engine

}  // namespace

ClientLink::Impl::Impl(Engine& engine, std::string address, const ClientLinkOptions& options)
    : engine_(engine), address_(std::move(address)), options_(options) {
  idle_.behind = IdleWorker::Behind::kFirst;  // one message has what they send
}

void ClientLink::Impl::start(bool connect_now) {
  MutexLock lock(life_);
  if (stopped_ || thread_.joinable()) return;
  // If the owner does not return, a failure would close the engine before its first request.
  if (connect_now && options_.owner_returns && !connect(Clock::now()))
    throw std::system_error(std::make_error_code(std::errc::permission_denied), address_);
  thread_ = start_io_thread("streamer-client", [this] { run(); });
}

void ClientLink::Impl::stop() {
  MutexLock lock(life_);
  if (std::exchange(stopped_, true)) return;
  if (!thread_.joinable()) return shut_down();
  stopping_.store(true, std::memory_order_relaxed);
  poller_.waiter().parker.unpark();
  thread_.join();
}

std::string ClientLink::Impl::connect_error() const {
  MutexLock lock(connect_error_mutex_);
  return connect_error_;
}

// --- the IO thread ---

void ClientLink::Impl::run() {
  TimePoint deadline = TimePoint::min();
  bool engine_changed = true;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (engine_changed) deadline = calls::expire(engine_, poller_.waiter());
    TimePoint until = std::min(deadline, forward_queued());
    if (!server_ && wants_connection()) {
      const TimePoint now = Clock::now();
      if (now >= connect_at_) connect(now);
      until = server_ ? TimePoint::min() : std::min(until, connect_at_);
    }
    if (!greeted_once_) until = std::min(until, end_overdue(Clock::now()));
    if (server_) send_controls();
    if (server_ && server_->broken()) until = TimePoint::min();  // do not sleep: no event would report this
    for (const Poller::Event& event : poller_.sleep(until, engine_changed)) {
      if (!server_) break;
      if ((event.events & EPOLLOUT) != 0) server_->flush();
      receive();
    }
    if (server_ && server_->broken()) {
      receive();  // results that came before it hung up
      disconnect(Outcome::kLost);
    }
    engine_changed |= poller_.take_wake() || Clock::now() >= until;
  }
  shut_down();
}

// Forwards queued requests. Without a connection, or while the server closes, the reservation is kept for the next
// server. Returns when to ask the engine again.
TimePoint ClientLink::Impl::forward_queued() {
  if (has_reservation_ && engine_.requests() == 0) {  // they have ended: do not connect, wait for the next one
    has_reservation_ = false;
    engine_.decline();
  }
  while (!server_ || (!server_->broken() && server_->unsent() < kMaxUnsent)) {
    if (!has_reservation_) {
      CloseReason reason{};
      TimePoint until;
      const Engine::Ready ready = engine_.start_waiting(idle_, reason, until);
      if (ready == Engine::Ready::kNotYet) return until;
      if (ready != Engine::Ready::kBatch) break;
      has_reservation_ = true;
    }
    if (!server_ || server_closing_) break;
    forward();
  }
  return TimePoint::max();
}

void ClientLink::Impl::forward() {
  has_reservation_ = false;
  Batch batch;
  EndedRequests expired;
  engine_.forward(batch, kItemsAtOnce, expired);
  publish(expired);
  if (batch.ranges.empty()) return;
  std::vector<SubmitHead> heads;
  std::vector<const Payload*> payloads;
  heads.reserve(batch.ranges.size());
  payloads.reserve(batch.ranges.size());
  for (const RequestRange& range : batch.ranges) {
    LocalCall& call = static_cast<LocalCall&>(SerializedCall::of(*range.request));
    // Before the message is sent: the server must learn of a cancel that comes from now on.
    const std::uint64_t id = call.forwarded(cancelled_requests_, ++last_id_);
    forwarded_.emplace(id, &call);
    const Request& request = *range.request;
    heads.push_back({.id = id,
                     .priority = request.priority,
                     .deadline = request.deadline,
                     .context = request.context,
                     .traits = request.traits});
    payloads.push_back(&call.payload);
  }
  server_->attempt([&] { server_->send(make_submit(heads, payloads)); });
}

// Returns false if the address is another user's.
bool ClientLink::Impl::connect(TimePoint now) {
  std::error_code failure;
  try {
    server_ = std::make_unique<Peer>(poller_, kServerKey, connect_to(address_));
    server_->send(make_hello(Role::kClient));
  } catch (const std::system_error& error) {
    failure = error.code();
    disconnect(Outcome::kLost);
    const bool no_listener =
        failure == std::errc::connection_refused || failure == std::errc::no_such_file_or_directory;
    if (no_listener && !options_.owner_returns) {
      set_connect_error(
          "the process that made the streamer has ended, and this one was forked from it; in a daemon, make the "
          "streamer after the last fork");
      close_engine();
      return true;
    }
    set_connect_error((no_listener ? "nothing listens at " : "cannot connect to ") + address_ + " (" +
                      failure.message() + ")");
  }
  connect_at_ = now + back_off_;
  back_off_ = std::min(2 * back_off_, kMaxBackOff);
  return failure != std::errc::permission_denied;
}

// Ends the requests that have waited too long for the first hello. Returns when to call it again.
TimePoint ClientLink::Impl::end_overdue(TimePoint now) {
  if (options_.first_patience == Duration::max()) return TimePoint::max();
  EndedRequests ended;
  const TimePoint oldest = engine_.expire_arrived_before(now - options_.first_patience, ended);
  if (ended.count > 0 && server_) set_connect_error("the process that listens at " + address_ + " does not answer");
  publish(ended);
  return oldest == TimePoint::max() ? oldest : oldest + options_.first_patience;
}

// For a server that is gone and will not be replaced.
void ClientLink::Impl::close_engine() {
  EndedRequests ended;
  engine_.close(false, ended);
  if (std::exchange(has_reservation_, false)) engine_.decline();
  publish(ended);
  pending_queries_.close();
}

// Sends everything but requests: releases, cancels and queries.
void ClientLink::Impl::send_controls() {
  server_->flush_releases();
  std::vector<std::uint64_t> cancelled = cancelled_requests_->take();
  std::erase_if(cancelled, [this](std::uint64_t id) { return !forwarded_.contains(id); });
  if (!cancelled.empty()) server_->send(make_ids(MessageType::kCancel, cancelled));
  for (OutMessage& query : pending_queries_.take_unsent()) server_->send(std::move(query));
}

void ClientLink::Impl::receive() {
  for (InMessage message; server_->receive(message);) {
    server_->attempt([&] {
      if (!handle_message(message)) server_->set_broken();
    });
  }
}

// False: the message is invalid, or not allowed now.
bool ClientLink::Impl::handle_message(InMessage& message) {
  dropped_bytes_ = message.dropped_bytes;
  if (dropped_bytes_ > 0) return false;
  if (!std::exchange(received_hello_, true)) {
    Hello hello;
    if (!parse(message, hello) || hello.version != kProtocolVersion || hello.role != Role::kEngine) return false;
    greeted_once_ = true;
    back_off_ = kFirstBackOff;
    set_connect_error({});
    return true;
  }
  if (message.type == MessageType::kResults) return handle_results(message);
  if (message.type == MessageType::kClosed) {
    return_all_untaken();
    return true;
  }
  QueryReply reply;
  return parse(message, reply) && pending_queries_.reply(message.id, std::move(reply));
}

bool ClientLink::Impl::handle_results(InMessage& message) {
  std::vector<EndedCall> answers;
  if (!parse(message, answers)) return false;
  std::vector<Engine::Returned> returned;
  std::vector<std::pair<std::uint64_t, LocalCall*>> untaken;
  returned.reserve(answers.size());
  bool valid = true;
  for (EndedCall& answer : answers) {
    const auto found = forwarded_.find(answer.id);
    valid = found != forwarded_.end() && found->second->fits(answer);
    if (!valid) break;
    LocalCall& call = *found->second;
    forwarded_.erase(found);
    for (ResultRange& range : answer.ranges) call.add(std::move(range));
    if (answer.outcome == Outcome::kRefused) call.request.retry_after = retry_after(answer.note);
    call.note = std::move(answer.note);
    if (answer.outcome == Outcome::kNone) {
      untaken.emplace_back(answer.id, &call);
    } else {
      returned.push_back({.request = &call.request, .outcome = local_outcome(call, answer.outcome)});
    }
  }
  std::reverse(returned.begin(), returned.end());  // the server lists the request that ended last first
  return_untaken(std::move(untaken), returned);
  take_back(returned);
  return valid;
}

void ClientLink::Impl::return_all_untaken() {
  server_closing_ = options_.owner_returns;
  std::vector<Engine::Returned> returned;
  return_untaken({forwarded_.begin(), forwarded_.end()}, returned);
  forwarded_.clear();
  take_back(returned);
}

// Requests that the server did not accept go back to the engine, in order, if another server may come. Otherwise they
// end.
void ClientLink::Impl::return_untaken(std::vector<std::pair<std::uint64_t, LocalCall*>> untaken,
                                      std::vector<Engine::Returned>& returned) {
  server_closing_ |= options_.owner_returns && !untaken.empty();
  std::sort(untaken.begin(), untaken.end(), std::greater<>());
  for (const auto& [id, call] : untaken) {
    if (options_.owner_returns) call->taken_back();
    returned.push_back(
        {.request = &call->request, .outcome = options_.owner_returns ? Outcome::kNone : Outcome::kClosed});
  }
}

// A server that closed while it had the request is a loss for this client if another server may come.
Outcome ClientLink::Impl::local_outcome(LocalCall& call, Outcome reply) const {
  if (reply != Outcome::kClosed || !options_.owner_returns) return reply;
  call.note = "the streamer at " + address_ + " was closed while a worker had the request";
  return Outcome::kLost;
}

// Ends the forwarded requests with the outcome, after the connection broke or could not be made.
void ClientLink::Impl::disconnect(Outcome outcome) {
  server_.reset();
  // A server that has not sent its hello has accepted no request.
  if (outcome == Outcome::kLost && !received_hello_) return_all_untaken();
  received_hello_ = false;
  server_closing_ = false;
  std::string note = "the connection to the streamer's process at " + address_ + " broke";
  if (dropped_bytes_ > 0) note += ": there was no memory for a message of " + std::to_string(dropped_bytes_) + " bytes";
  dropped_bytes_ = 0;
  std::vector<Engine::Returned> returned;
  returned.reserve(forwarded_.size());
  for (const auto& [id, call] : std::exchange(forwarded_, {})) {
    call->note = note;
    returned.push_back({.request = &call->request, .outcome = outcome});
  }
  take_back(returned);
  pending_queries_.disconnected();
}

void ClientLink::Impl::take_back(const std::vector<Engine::Returned>& returned) {
  if (returned.empty()) return;
  EndedRequests ended;
  ReleasedRequests released;
  engine_.take_back(returned, ended, released);
  publish(ended, 2);  // how fast the model is, this engine does not know
  let_go(released);
}

void ClientLink::Impl::shut_down() {
  // First: from here on no submit reserves a batch for this thread, or wakes it.
  engine_.deadline_timer().stop_watching(poller_.waiter());
  engine_.stop_waiting(idle_);
  if (std::exchange(has_reservation_, false)) engine_.decline();
  pending_queries_.close();
  disconnect(Outcome::kClosed);
  poller_.close();
}

}  // namespace service_streamer::ipc
