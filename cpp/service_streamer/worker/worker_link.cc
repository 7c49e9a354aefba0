#include "service_streamer/worker/worker_link.h"

#include <new>
#include <utility>
#include <vector>

namespace service_streamer::ipc {

WorkerLink::WorkerLink(FileDescriptor socket)
    : pool_(SharedPool::make()), connection_(Connection::make(std::move(socket))) {}

// Blocks until a message of this type. Hangs up on any other message but kCancel and kPlaces, and on a setup for which
// there is no memory.
WorkerLink::ReceiveStatus WorkerLink::receive(MessageType type, InMessage& message, TimePoint deadline) {
  for (;;) {
    switch (connection_->wait_and_receive(message, deadline)) {
      case Received::kMessage:
        if (message.type == type && (message.dropped_bytes == 0 || type == MessageType::kBatch))
          return ReceiveStatus::kReceived;
        if (message.type == MessageType::kCancel && cancel(message)) continue;
        if (message.type == MessageType::kPlaces) {
          places_ = message.id;
          continue;
        }
        break;
      case Received::kNothing:
        return deadline == TimePoint::max() ? ReceiveStatus::kInterrupted : ReceiveStatus::kNothing;
      case Received::kClosed:
      case Received::kCorrupt:
        break;
    }
    connection_->shut_down();
    return ReceiveStatus::kClosed;
  }
}

// False: the message is invalid.
bool WorkerLink::cancel(const InMessage& message) {
  std::vector<std::uint64_t> ids;
  if (message.dropped_bytes > 0 || !parse(message, ids)) return false;
  for (const std::uint64_t id : ids) {
    // The reply to the others is on its way.
    if (const auto found = open_.find(id); found != open_.end()) found->second = true;
  }
  return true;
}

bool WorkerLink::cancelled(std::uint64_t id) const {
  const auto found = open_.find(id);
  return found != open_.end() && found->second;
}

WorkerLink::ReceiveStatus WorkerLink::receive_setup(Bytes& setup) {
  if (!std::exchange(sent_hello_, true) && !connection_->send_all(make_hello(Role::kWorker)))
    return ReceiveStatus::kClosed;
  InMessage message;
  if (!received_hello_) {
    const ReceiveStatus status = receive(MessageType::kHello, message);
    if (status != ReceiveStatus::kReceived) return status;
    Hello hello;
    received_hello_ = parse(message, hello) && hello.version == kProtocolVersion && hello.role == Role::kEngine;
    if (!received_hello_) {
      connection_->shut_down();
      return ReceiveStatus::kClosed;
    }
  }
  const ReceiveStatus status = receive(MessageType::kSetup, message);
  if (status == ReceiveStatus::kReceived) setup = std::move(message.body);
  return status;
}

bool WorkerLink::send_ready(const std::string& about) {
  return connection_->send_all(make_text(MessageType::kReady, about));
}

bool WorkerLink::send_init_failed(const std::string& traceback) {
  return connection_->send_all(make_text(MessageType::kInitFailed, traceback));
}

WorkerLink::ReceiveStatus WorkerLink::next_batch(std::uint64_t& id, BatchMessage& batch, TimePoint deadline) {
  InMessage message;
  const ReceiveStatus status = receive(MessageType::kBatch, message, deadline);
  if (status != ReceiveStatus::kReceived) return status;
  id = message.id;
  open_.emplace(id, false);
  batch.dropped_bytes = message.dropped_bytes;
  if (batch.dropped_bytes > 0) return status;
  const std::size_t size = message.body.size();
  try {
    if (parse(message, batch)) return status;
  } catch (const std::bad_alloc&) {
    batch = {};
    batch.dropped_bytes = size;
    return status;
  }
  connection_->shut_down();
  return ReceiveStatus::kClosed;
}

bool WorkerLink::send_paused(std::size_t count) {
  return connection_->send_all(make_text(MessageType::kPaused, {}, count));
}

bool WorkerLink::reply(std::uint64_t id, const ReplyMessage& reply) {
  open_.erase(id);
  return connection_->send_all(make_reply(id, reply));
}

}  // namespace service_streamer::ipc
