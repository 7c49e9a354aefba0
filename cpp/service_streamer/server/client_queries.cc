#include <stdexcept>
#include <utility>

#include "service_streamer/server/clients.h"
#include "service_streamer/wire/message.h"

// The part of Clients that replies to queries.

namespace service_streamer::ipc {

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
      const std::uint64_t recording = engine_.start_recording(query.limit, query.max_events);
      if (recording != 0) client.recording = recording;
      return {.yes = recording != 0, .text = {}};
    }
    case QueryKind::kFinishRecording: {
      std::string events = engine_.finish_recording(std::exchange(client.recording, 0));
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

}  // namespace service_streamer::ipc
