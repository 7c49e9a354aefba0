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
constexpr std::size_t kItemsAtOnce = 1024;                 // of one message, but for the last request in it
constexpr std::size_t kMostUnsent = std::size_t{1} << 20;  // bytes; more waits in the engine

// Whether a peer's answer can be one to that request.
bool fits(const Request& request, const EndedCall& answer) {
  if (answer.outcome == Outcome::kFailed) return !answer.pieces.empty();
  if (answer.outcome != Outcome::kAnswered) return answer.pieces.empty();
  std::uint64_t items = 0;
  for (const ResultRange& piece : answer.pieces) {
    if (piece.begin != items || piece.result.kind == ResultKind::kError) return false;
    items += piece.count;
  }
  return items == request.size;
}

}  // namespace

ClientLink::Impl::Impl(Engine& engine, std::string address, bool owner_returns)
    : engine_(engine), address_(std::move(address)), owner_returns_(owner_returns) {}

void ClientLink::Impl::start(bool connect_now) {
  MutexLock lock(life_);
  if (stopped_ || thread_.joinable()) return;
  if (connect_now && owner_returns_) connect(Clock::now());  // else it would close the engine, which has no request yet
  thread_ = start_io_thread("streamer-client_link", [this] { run(); });
}

void ClientLink::Impl::stop() {
  MutexLock lock(life_);
  if (std::exchange(stopped_, true)) return;
  if (!thread_.joinable()) return clean_up();
  stopping_.store(true, std::memory_order_relaxed);
  poller_.waiter().parker.unpark();
  thread_.join();
}

std::string ClientLink::Impl::absence() const {
  MutexLock lock(absence_mutex_);
  return absence_;
}

void ClientLink::Impl::set_absence(std::string words) {
  MutexLock lock(absence_mutex_);
  absence_ = std::move(words);
}

// --- the IO thread ---

void ClientLink::Impl::run() {
  TimePoint deadline = TimePoint::min();
  bool look = true;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (look) deadline = calls::expire(engine_, poller_.waiter());
    TimePoint until = std::min(deadline, pull());
    if (!server_ && wants_connection()) {
      const TimePoint now = Clock::now();
      if (now >= connect_at_) connect(now);
      until = server_ ? TimePoint::min() : std::min(until, connect_at_);
    }
    if (server_) send_small();
    if (server_ && server_->broken())
      until = TimePoint::min();  // there was no memory for it: nobody would wake this thread
    for (const Poller::Event& event : poller_.sleep(until, look)) {
      if (!server_) break;
      if ((event.events & EPOLLOUT) != 0) server_->flush();
      receive();
    }
    if (server_ && server_->broken()) {
      receive();  // what it said before it went
      disconnect(Outcome::kLost);
    }
    look |= poller_.take_wake() || Clock::now() >= until;
  }
  clean_up();
}

// Hands on what the engine has. Without a connection, or while the Server closes, the engine's promise is kept for the next one.
TimePoint ClientLink::Impl::pull() {
  while (!server_ || (!server_->broken() && server_->unsent() < kMostUnsent)) {
    if (!promised_) {
      CloseReason reason{};
      TimePoint until;
      const Engine::Ready ready = engine_.start_waiting(idle_, reason, until);
      if (ready == Engine::Ready::kNotYet) return until;
      if (ready != Engine::Ready::kBatch) break;
      promised_ = true;
    }
    if (!server_ || closing_) break;
    forward();
  }
  return TimePoint::max();
}

void ClientLink::Impl::forward() {
  promised_ = false;
  Batch batch;
  EndedRequests expired;
  engine_.forward(batch, kItemsAtOnce, expired);
  publish(expired);
  if (batch.parts.empty()) return;
  std::vector<SubmitHead> heads;
  std::vector<const Payload*> payloads;
  heads.reserve(batch.parts.size());
  payloads.reserve(batch.parts.size());
  for (const RequestRange& part : batch.parts) {
    LocalCall& call = static_cast<LocalCall&>(SerializedCall::of(*part.request));
    const std::uint64_t id = call.forwarded(cancelled_requests_, ++last_id_);
    forwarded_.emplace(id, &call);
    heads.push_back({.id = id, .priority = part.request->priority, .deadline = part.request->deadline});
    payloads.push_back(&call.payload);
  }
  server_->attempt([&] { server_->send(make_submit(heads, payloads)); });
}

void ClientLink::Impl::connect(TimePoint now) {
  try {
    server_ = std::make_unique<Peer>(poller_, kServerKey, connect_to(address_));
    server_->send(make_hello(Role::kClient));
  } catch (const std::system_error& error) {
    disconnect(Outcome::kLost);
    const bool nobody_listens =
        error.code() == std::errc::connection_refused || error.code() == std::errc::no_such_file_or_directory;
    set_absence((nobody_listens ? "nothing listens at " : "cannot connect to ") + address_ + " (" +
                error.code().message() + ")");
    if (nobody_listens && !owner_returns_) return close_engine();
  }
  connect_at_ = now + back_off_;
  back_off_ = std::min(2 * back_off_, kLastBackOff);
}

// The owner has gone, and nobody comes after it.
void ClientLink::Impl::close_engine() {
  EndedRequests ended;
  engine_.close(false, ended);
  if (std::exchange(promised_, false)) engine_.decline();
  publish(ended);
  pending_queries_.close();
}

// Questions, cancelled requests, blocks that are not needed any more.
void ClientLink::Impl::send_small() {
  server_->flush_releases();
  std::vector<std::uint64_t> cancelled = cancelled_requests_->take();
  std::erase_if(cancelled, [this](std::uint64_t id) { return !forwarded_.contains(id); });
  if (!cancelled.empty()) server_->send(make_ids(MessageType::kCancel, cancelled));
  for (OutMessage& question : pending_queries_.take()) server_->send(std::move(question));
}

void ClientLink::Impl::receive() {
  for (InMessage message; server_->receive(message);) {
    server_->attempt([&] {
      if (!understand(message)) server_->set_broken();
    });
  }
}

// False: not what a Server says.
bool ClientLink::Impl::understand(InMessage& message) {
  unread_ = message.unread;
  if (unread_ > 0) return false;
  if (!std::exchange(heard_hello_, true)) {
    Hello hello;
    back_off_ = kFirstBackOff;
    set_absence({});
    return message.type == MessageType::kHello && parse(message, hello) && hello.version == kProtocolVersion &&
           hello.role == Role::kEngine;
  }
  if (message.type == MessageType::kResults) return take_results(message);
  if (message.type == MessageType::kClosed) {
    return_all_untaken();
    return true;
  }
  QueryReply reply;
  return parse(message, reply) && pending_queries_.reply(message.id, std::move(reply));
}

bool ClientLink::Impl::take_results(InMessage& message) {
  std::vector<EndedCall> answers;
  if (!parse(message, answers)) return false;
  std::vector<Engine::Returned> returned;
  std::vector<std::pair<std::uint64_t, LocalCall*>> untaken;
  returned.reserve(answers.size());
  bool sound = true;
  for (EndedCall& answer : answers) {
    const auto found = forwarded_.find(answer.id);
    sound = found != forwarded_.end() && fits(found->second->request, answer);
    if (!sound) break;
    LocalCall& call = *found->second;
    forwarded_.erase(found);
    for (ResultRange& piece : answer.pieces) call.add(std::move(piece));
    call.note = std::move(answer.note);
    if (answer.outcome == Outcome::kNone) {
      untaken.emplace_back(answer.id, &call);
    } else {
      returned.push_back({.request = &call.request, .outcome = ends_as(call, answer.outcome)});
    }
  }
  std::reverse(returned.begin(), returned.end());  // the last to end there was published first
  return_untaken(std::move(untaken), returned);
  take_back(returned);
  return sound;
}

void ClientLink::Impl::return_all_untaken() {
  closing_ = owner_returns_;
  std::vector<Engine::Returned> returned;
  return_untaken({forwarded_.begin(), forwarded_.end()}, returned);
  forwarded_.clear();
  take_back(returned);
}

// They wait for the next Server, in their order, where one may come.
void ClientLink::Impl::return_untaken(std::vector<std::pair<std::uint64_t, LocalCall*>> untaken,
                                      std::vector<Engine::Returned>& returned) {
  closing_ |= owner_returns_ && !untaken.empty();
  std::sort(untaken.begin(), untaken.end(), std::greater<>());
  for (const auto& [id, call] : untaken) {
    if (owner_returns_) call->taken_back();
    returned.push_back({.request = &call->request, .outcome = owner_returns_ ? Outcome::kNone : Outcome::kClosed});
  }
}

// Here nobody closed anything where another Server may come.
Outcome ClientLink::Impl::ends_as(LocalCall& call, Outcome reply) const {
  if (reply != Outcome::kClosed || !owner_returns_) return reply;
  call.note = "the streamer at " + address_ + " was closed while a worker had the request";
  return Outcome::kLost;
}

// The connection is broken, or there is none to be had.
void ClientLink::Impl::disconnect(Outcome outcome) {
  server_.reset();
  if (outcome == Outcome::kLost && !heard_hello_) return_all_untaken();  // it was gone before it took any
  heard_hello_ = false;
  closing_ = false;
  std::string note = "the connection to the streamer's process at " + address_ + " broke";
  if (unread_ > 0) note += ": there was no memory for a message of " + std::to_string(unread_) + " bytes";
  unread_ = 0;
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
  publish(ended);
  let_go(released);
}

void ClientLink::Impl::clean_up() {
  engine_.stop_watching(poller_.waiter());
  engine_.stop_waiting(idle_);
  if (std::exchange(promised_, false)) engine_.decline();
  pending_queries_.close();
  disconnect(Outcome::kClosed);
}

}  // namespace service_streamer::ipc
