#include "service_streamer/server/clients.h"

#include <sys/epoll.h>

#include <exception>
#include <limits>
#include <stdexcept>
#include <utility>

#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {
namespace {

constexpr std::uint64_t kListenerKey = Clients::kKeys;
constexpr Duration kLastReadTimeout = std::chrono::seconds(1);  // for all clients to read their last results
constexpr int kMessagesAtOnce = 32;                             // of one client, before other clients are served

}  // namespace

Clients::Clients(Engine& engine, Poller& poller, WorkerEvents& events, Workers workers, FileDescriptor listener)
    : engine_(engine),
      poller_(poller),
      events_(events),
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

void Clients::handle(const Poller::Event& event) {
  if (event.key == kListenerKey) return accept();
  const auto found = clients_.find(event.key);
  if (found == clients_.end()) return;
  Client& client = *found->second;
  if ((event.events & EPOLLOUT) != 0) client.peer.flush();
  if (client.blocked()) {
    if ((event.events & (EPOLLHUP | EPOLLERR)) != 0) client.peer.set_broken();  // its unread messages no longer matter
    return;
  }
  read(client);
}

bool Clients::serve() {
  for (const auto& [id, client] : clients_) {
    client->peer.flush_releases();
    while (!client->waiting.empty() && engine_.has_room(client->waiting.front()->request, poller_.waiter())) {
      client->waiting.front()->unref();
      client->waiting.pop_front();
    }
    if (client->more && !client->blocked()) read(*client);
  }
  answer_ready_queries();
  remove_broken();
  send_results();  // after all that may end requests, so that one message has all of them
  bool more = false;
  for (const auto& [id, client] : clients_) {
    const bool reads = !client->blocked();
    client->peer.read(reads);
    more |= (reads && client->more) || client->peer.broken();
  }
  return more;
}

void Clients::stop() {
  poller_.forget(listener_.get());
  listener_.reset();
  for (const auto& [id, client] : clients_) {
    if (!client->blocked()) read(*client);  // requests that have arrived are reported too
    end_all(*client, Outcome::kClosed);
  }
  send_results();
  const TimePoint deadline = Clock::now() + kLastReadTimeout;
  for (const auto& [id, client] : clients_) {
    client->peer.send(make_text(MessageType::kClosed, {}));
    client->peer.send_rest(deadline);
    client->peer.set_broken();
  }
  remove_broken();  // the clients see the end of file
  ended_calls_->close();
}

// --- private ---

void Clients::accept() {
  while (FileDescriptor socket = accept_from(listener_)) {
    try {
      const std::uint64_t id = ++last_client_;
      clients_[id] = std::make_unique<Client>(poller_, id, std::move(socket));
    } catch (const std::exception&) {  // epoll failed, or no memory: the client sees the end of file
      clients_.erase(last_client_);
    }
  }
}

void Clients::read(Client& client) {
  InMessage message;
  for (int i = 0; i < kMessagesAtOnce && !client.blocked(); ++i) {
    client.more = client.peer.receive(message);
    if (!client.more) return;
    client.peer.attempt([&] {
      if (!handle_message(client, message)) client.peer.set_broken();
    });
  }
  client.more = true;
}

// False: the message is invalid, or not allowed now.
bool Clients::handle_message(Client& client, InMessage& message) {
  if (!std::exchange(client.received_hello, true)) {
    Hello hello;
    if (message.type != MessageType::kHello || !parse(message, hello)) return false;
    client.peer.send(make_hello(Role::kEngine));  // to any version: the client then reports the mismatch
    if (hello.version != kProtocolVersion || hello.role != Role::kClient) return false;
    client.pid = std::to_string(hello.pid);
    events_.post({.kind = Server::Event::Kind::kClientConnected, .worker = 0, .text = client.pid});
    return true;
  }
  switch (message.type) {
    case MessageType::kSubmit:
      return submit(client, message);
    case MessageType::kCancel:
      return cancel(client, message);
    case MessageType::kQuery:
      return handle_query(client, message);
    default:
      return false;
  }
}

bool Clients::submit(Client& client, InMessage& message) {
  submitted_.clear();
  bool valid = parse(message, submitted_);
  for (std::size_t i = 0; valid && i < submitted_.size(); ++i) {
    const std::size_t items = submitted_[i].payload.items();
    valid = items > 0 && items <= std::numeric_limits<std::uint32_t>::max() &&
            !client.calls.contains(submitted_[i].head.id);
    if (valid) submit(client, submitted_[i]);
  }
  submitted_.clear();
  return valid;
}

void Clients::submit(Client& client, SubmittedRequest& submitted) {
  ClientCallRef owned(new ClientCall(ended_calls_, client.id, submitted.head.id));
  ClientCall* call = owned.get();
  call->request.size = static_cast<std::uint32_t>(submitted.payload.items());
  call->request.priority = submitted.head.priority;
  call->request.deadline = submitted.head.deadline;
  call->request.context = std::move(submitted.head.context);
  call->request.traits = std::move(submitted.head.traits);
  call->payload = std::move(submitted.payload);
  client.calls.emplace(call->id(), call);
  keep(std::move(owned));
  if (!engine_.knows_tenant(call->request)) return refuse(client, *call);
  ClientCallRef of_engine = new_ref(*call);
  const Engine::Admission admission = engine_.submit_accepted(call->request);
  if (admission != Engine::Admission::kQueued && admission != Engine::Admission::kWaiting) {
    return refuse(client, *call);
  }
  keep(std::move(of_engine));
  if (admission == Engine::Admission::kWaiting) {
    client.waiting.push_back(call);
    call->ref();
  }
  workers_.availability.check(call->request);
}

bool Clients::cancel(Client& client, const InMessage& message) {
  std::vector<std::uint64_t> ids;
  if (!parse(message, ids)) return false;
  EndedRequests ended;
  for (const std::uint64_t id : ids) {
    const auto found = client.calls.find(id);  // not found: it has ended, and its result is being sent
    if (found != client.calls.end()) engine_.end_early(found->second->request, Outcome::kCancelled, true, ended);
  }
  publish(ended);
  return true;
}

// False: the query is invalid.
bool Clients::handle_query(Client& client, const InMessage& message) {
  Query query;
  if (!parse(message, query)) return false;
  if (query.kind == QueryKind::kWaitReady) {
    client.ready_queries.push_back(message.id);
    ++ready_query_count_;
  } else {
    send_reply(client, message.id, reply_to(client, query));
  }
  return true;
}

QueryReply Clients::reply_to(Client& client, const Query& query) {
  const auto call = client.calls.find(query.request);
  EndedRequests ended;
  switch (query.kind) {
    case QueryKind::kCancel: {
      const bool cancelled =
          call != client.calls.end() && engine_.end_early(call->second->request, Outcome::kCancelled, false, ended);
      publish(ended);
      send_results();  // so that the client sees the end of the request before the reply
      return {.yes = cancelled, .text = {}};
    }
    case QueryKind::kRunning:
      return {.yes = call != client.calls.end() && engine_.running(call->second->request), .text = {}};
    case QueryKind::kStats:
      return {.yes = true, .text = workers_.stats()};
    case QueryKind::kConfigure:
      try {
        workers_.configure(query.change);
      } catch (const std::invalid_argument& error) {
        return {.yes = false, .text = error.what()};
      }
      return {.yes = true, .text = {}};
    case QueryKind::kStartRecording: {
      const std::uint64_t recording = engine_.recorder().start(query.limit, query.max_events);
      if (recording != 0) client.recording = recording;
      return {.yes = recording != 0, .text = {}};
    }
    case QueryKind::kFinishRecording: {
      std::string events = engine_.recorder().finish(std::exchange(client.recording, 0));
      return {.yes = !events.empty(), .text = std::move(events)};
    }
    case QueryKind::kWaitReady:
      break;
  }
  return {};
}

void Clients::send_reply(Client& client, std::uint64_t id, QueryReply reply) {
  client.peer.send(make_query_reply(id, std::move(reply)));
}

// Replies to kWaitReady queries if a worker is ready, or if none will be.
void Clients::answer_ready_queries() {
  if (ready_query_count_ == 0) return;
  QueryReply reply{.yes = workers_.any_ready(), .text = {}};
  if (!reply.yes && !workers_.availability.unavailable()) return;
  if (!reply.yes) reply.text = workers_.availability.note();
  for (const auto& [id, client] : clients_) {
    for (const std::uint64_t query : std::exchange(client->ready_queries, {})) send_reply(*client, query, reply);
  }
  ready_query_count_ = 0;
}

void Clients::send_results() {
  EndedCallChain calls = ended_calls_->take();
  while (const ClientCallRef call = calls.pop()) {
    const auto found = clients_.find(call->client());
    if (found == clients_.end() || found->second->calls.erase(call->id()) == 0) continue;
    const ClientCallRef of_client(call.get());
    engine_.replied(call->request, Clock::now());
    found->second->peer.attempt([&] { found->second->ended.push_back(call->take_end()); });
  }
  for (const auto& entry : clients_) {
    Client& client = *entry.second;
    if (client.ended.empty()) continue;
    client.peer.attempt([&] { client.peer.send(make_results(client.ended)); });
    client.ended.clear();
  }
}

void Clients::refuse(Client& client, ClientCall& call) {
  EndedCall end{.id = call.id(), .outcome = Outcome::kNone, .note = {}, .ranges = {}};
  if (!engine_.knows_tenant(call.request)) {
    end.outcome = Outcome::kLost;
    end.note = "tenant: " + std::string(call.request.tenant());
  } else if (call.request.retry_after > 0) {
    end.outcome = Outcome::kRefused;
    end.note = retry_note(call.request.retry_after);
    EndedRequests hopeless;
    engine_.end_hopeless(hopeless);
    publish(hopeless);
  }
  client.ended.push_back(std::move(end));
  client.calls.erase(call.id());
  call.unref();
}

void Clients::end_all(Client& client, Outcome outcome) {
  EndedRequests ended;
  for (const auto& [id, call] : client.calls) engine_.end_early(call->request, outcome, true, ended);
  publish(ended);
}

void Clients::remove_broken() {
  for (auto next = clients_.begin(); next != clients_.end();) {
    if (!next->second->peer.broken()) {
      ++next;
      continue;
    }
    const std::unique_ptr<Client> client = std::move(next->second);
    next = clients_.erase(next);
    end_all(*client, Outcome::kCancelled);
    if (client->recording != 0) engine_.recorder().drop(client->recording);
    if (!client->pid.empty()) {
      events_.post({.kind = Server::Event::Kind::kClientGone, .worker = 0, .text = client->pid});
    }
    for (const auto& [id, call] : client->calls) call->unref();
    for (ClientCall* call : client->waiting) call->unref();
    ready_query_count_ -= client->ready_queries.size();
  }
}

}  // namespace service_streamer::ipc
