#include "service_streamer/worker/worker_link.h"

#include <new>
#include <utility>

namespace service_streamer::ipc {

WorkerLink::WorkerLink(FileDescriptor socket)
    : pool_(SharedPool::make()), connection_(Connection::make(std::move(socket))) {}

// Blocks until a message of this type. Hangs up on any other message, and on a setup for which there is no memory.
WorkerLink::ReceiveStatus WorkerLink::receive(MessageType type, InMessage& message) {
  switch (connection_->wait_and_receive(message)) {
    case Received::kMessage:
      if (message.type == type && (message.dropped_bytes == 0 || type == MessageType::kBatch))
        return ReceiveStatus::kReceived;
      break;
    case Received::kNothing:
      return ReceiveStatus::kInterrupted;
    case Received::kClosed:
    case Received::kCorrupt:
      break;
  }
  connection_->shut_down();
  return ReceiveStatus::kClosed;
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

WorkerLink::ReceiveStatus WorkerLink::next_batch(std::uint64_t& id, BatchMessage& batch) {
  InMessage message;
  const ReceiveStatus status = receive(MessageType::kBatch, message);
  if (status != ReceiveStatus::kReceived) return status;
  id = message.id;
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

bool WorkerLink::reply(std::uint64_t id, const ReplyMessage& reply) {
  return connection_->send_all(make_reply(id, reply));
}

}  // namespace service_streamer::ipc
