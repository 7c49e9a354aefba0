#include "service_streamer/server/clients.h"

#include <sys/epoll.h>

#include <deque>
#include <exception>
#include <limits>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {
namespace {

constexpr std::uint64_t kListenerKey = Clients::kKeys;
constexpr std::size_t kMostUnread = std::size_t{64} << 20;  // bytes of answers that a client may leave unread
constexpr Duration kFarewell = std::chrono::seconds(1);     // until all have read their last answers
constexpr int kMessagesAtOnce = 32;                         // of one client, before the others have their turn

}  // namespace

struct Clients::Client {
  Client(Poller& poller, std::uint64_t its_id, FileDescriptor socket)
      : id(its_id), peer(poller, its_id, std::move(socket)) {}

  // Whether it must wait until there is room for what it sent, or until it reads what it was sent.
  bool held_up() const { return !waiting.empty() || peer.unsent() > kMostUnread; }

  const std::uint64_t id;
  Peer peer;
  bool heard_hello = false;
  bool more = false;                                     // was received but not looked at
  std::unordered_map<std::uint64_t, ClientCall*> calls;  // that have not ended, by their ids; a reference each
  std::deque<ClientCall*> waiting;                       // in the engine's waiting room; a reference each
  std::vector<EndedCall> ended;                          // to be sent
  std::vector<std::uint64_t> ready_asks;
};

Clients::Clients(Engine& engine, Poller& poller, Workers workers, FileDescriptor listener)
    : engine_(engine),
      poller_(poller),
      workers_(std::move(workers)),
      ended_calls_(std::make_shared<EndedCalls>(poller.waiter())),
      listener_(std::move(listener)) {
  poller_.watch(listener_.get(), kListenerKey, EPOLLIN);
}

Clients::~Clients() {
  if (listener_) poller_.forget(listener_.get());
}

void Clients::start() {
  ended_calls_->belong_to_this_thread();
}

// --- what comes in ---

void Clients::handle(const Poller::Event& event) {
  if (event.key == kListenerKey) return accept();
  const auto found = clients_.find(event.key);
  if (found == clients_.end()) return;
  Client& client = *found->second;
  if ((event.events & EPOLLOUT) != 0) client.peer.flush();
  if (client.held_up()) {
    if ((event.events & (EPOLLHUP | EPOLLERR)) != 0) client.peer.set_broken();  // what it still said nobody wants
    return;
  }
  read(client);
}

void Clients::accept() {
  while (FileDescriptor socket = accept_from(listener_)) {
    try {
      const std::uint64_t id = ++last_client_;
      clients_[id] = std::make_unique<Client>(poller_, id, std::move(socket));
    } catch (const std::exception&) {  // no room in epoll, no memory: it sees the end of file
      clients_.erase(last_client_);
    }
  }
}

void Clients::read(Client& client) {
  InMessage message;
  for (int i = 0; i < kMessagesAtOnce && !client.held_up(); ++i) {
    client.more = client.peer.receive(message);
    if (!client.more) return;
    client.peer.attempt([&] {
      if (!understand(client, message)) client.peer.set_broken();
    });
  }
  client.more = true;
}

// False: not what a client says.
bool Clients::understand(Client& client, InMessage& message) {
  if (!std::exchange(client.heard_hello, true)) {
    Hello hello;
    if (message.type != MessageType::kHello || !parse(message, hello)) return false;
    client.peer.send(make_hello(Role::kEngine));  // also to one of another version, which says so there
    return hello.version == kProtocolVersion && hello.role == Role::kClient;
  }
  switch (message.type) {
    case MessageType::kSubmit:
      return submit(client, message);
    case MessageType::kCancel:
      return cancel(client, message);
    case MessageType::kQuery:
      return answer(client, message);
    default:
      return false;
  }
}

bool Clients::submit(Client& client, InMessage& message) {
  submitted_.clear();
  bool sound = parse(message, submitted_);
  for (std::size_t i = 0; sound && i < submitted_.size(); ++i) {
    const std::size_t items = submitted_[i].payload.items();
    sound = items > 0 && items <= std::numeric_limits<std::uint32_t>::max() &&
            !client.calls.contains(submitted_[i].head.id);
    if (sound) submit(client, submitted_[i]);
  }
  submitted_.clear();
  return sound;
}

void Clients::submit(Client& client, SubmittedRequest& submitted) {
  auto* call = new ClientCall(ended_calls_, client.id, submitted.head.id);
  call->request.size = static_cast<std::uint32_t>(submitted.payload.items());
  call->request.priority = submitted.head.priority;
  call->request.deadline = submitted.head.deadline;
  call->payload = std::move(submitted.payload);
  client.calls.emplace(call->id(), call);
  call->ref();  // the engine's
  switch (engine_.submit_accepted(call->request)) {
    case Engine::Admission::kWaiting:
      call->ref();
      client.waiting.push_back(call);
      break;
    case Engine::Admission::kQueued:
      break;
    case Engine::Admission::kFull:
    case Engine::Admission::kClosed:
      client.ended.push_back({.id = call->id(), .outcome = Outcome::kNone, .note = {}, .pieces = {}});
      client.calls.erase(call->id());
      call->unref();
      call->unref();
      return;
  }
  workers_.failure.check(call->request);
}

bool Clients::cancel(Client& client, const InMessage& message) {
  std::vector<std::uint64_t> ids;
  if (!parse(message, ids)) return false;
  EndedRequests ended;
  for (const std::uint64_t id : ids) {
    const auto found = client.calls.find(id);  // or its answer is on the way
    if (found != client.calls.end()) engine_.end_early(found->second->request, Outcome::kCancelled, true, ended);
  }
  publish(ended);
  return true;
}

// --- questions ---

bool Clients::answer(Client& client, const InMessage& message) {
  Query query;
  if (!parse(message, query)) return false;
  if (query.question == QueryKind::kWaitReady) {
    client.ready_asks.push_back(message.id);
    ++asked_ready_;
  } else {
    tell(client, message.id, reply(client, query));
  }
  return true;
}

QueryReply Clients::reply(Client& client, const Query& query) {
  const auto call = client.calls.find(query.request);
  EndedRequests ended;
  switch (query.question) {
    case QueryKind::kCancel: {
      const bool cancelled =
          call != client.calls.end() && engine_.end_early(call->second->request, Outcome::kCancelled, false, ended);
      publish(ended);
      send_answers();  // it hears of the end before the answer
      return {.yes = cancelled, .text = {}};
    }
    case QueryKind::kRunning:
      return {.yes = call != client.calls.end() && engine_.running(call->second->request), .text = {}};
    case QueryKind::kStats:
      return {.yes = true, .text = workers_.stats()};
    case QueryKind::kConfigure:
      try {
        engine_.configure(query.change);
      } catch (const std::invalid_argument& error) {
        return {.yes = false, .text = error.what()};
      }
      return {.yes = true, .text = {}};
    case QueryKind::kWaitReady:
      break;
  }
  return {};
}

void Clients::tell(Client& client, std::uint64_t id, const QueryReply& reply) {
  client.peer.send(make_told(id, reply));
}

void Clients::tell_ready() {
  if (asked_ready_ == 0) return;
  QueryReply reply{.yes = workers_.any_ready(), .text = {}};
  if (!reply.yes && !workers_.failure.in_force()) return;
  if (!reply.yes) reply.text = workers_.failure.note();
  for (const auto& [id, client] : clients_) {
    for (const std::uint64_t query : std::exchange(client->ready_asks, {})) tell(*client, query, reply);
  }
  asked_ready_ = 0;
}

// --- what goes out ---

bool Clients::serve() {
  for (const auto& [id, client] : clients_) {
    client->peer.flush_releases();
    while (!client->waiting.empty() && engine_.has_room(client->waiting.front()->request, poller_.waiter())) {
      client->waiting.front()->unref();
      client->waiting.pop_front();
    }
    if (client->more && !client->held_up()) read(*client);
  }
  tell_ready();
  bury_dead();
  send_answers();
  bool more = false;
  for (const auto& [id, client] : clients_) {
    const bool reads = !client->held_up();
    client->peer.read(reads);
    more |= (reads && client->more) || client->peer.broken();
  }
  return more;
}

void Clients::send_answers() {
  for (ClientCall* call : ended_calls_->take()) {
    const auto found = clients_.find(call->client());
    if (found != clients_.end() && found->second->calls.erase(call->id()) > 0) {
      found->second->ended.push_back(call->take_end());
      call->unref();
    }
    call->unref();
  }
  for (const auto& [id, client] : clients_) {
    if (client->ended.empty()) continue;
    client->peer.attempt([&] { client->peer.send(make_results(client->ended)); });
    client->ended.clear();
  }
}

// --- the end of a client ---

void Clients::end_all(Client& client, Outcome outcome) {
  EndedRequests ended;
  for (const auto& [id, call] : client.calls) engine_.end_early(call->request, outcome, true, ended);
  publish(ended);
}

void Clients::bury_dead() {
  for (auto next = clients_.begin(); next != clients_.end();) {
    if (!next->second->peer.broken()) {
      ++next;
      continue;
    }
    const std::unique_ptr<Client> client = std::move(next->second);
    next = clients_.erase(next);
    end_all(*client, Outcome::kCancelled);
    for (const auto& [id, call] : client->calls) call->unref();
    for (ClientCall* call : client->waiting) call->unref();
    asked_ready_ -= client->ready_asks.size();
  }
}

void Clients::stop() {
  poller_.forget(listener_.get());
  listener_.reset();
  for (const auto& [id, client] : clients_) {
    if (!client->held_up()) read(*client);  // what came meanwhile
    end_all(*client, Outcome::kClosed);
  }
  send_answers();
  const TimePoint deadline = Clock::now() + kFarewell;
  for (const auto& [id, client] : clients_) {
    client->peer.send(make_text(MessageType::kClosed, {}));
    client->peer.send_rest(deadline);
    client->peer.set_broken();
  }
  bury_dead();  // sends the end of file
  ended_calls_->close();
}

}  // namespace service_streamer::ipc
