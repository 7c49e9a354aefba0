#include "service_streamer/worker/worker_link.h"

#include <new>
#include <utility>

namespace service_streamer::ipc {

WorkerLink::WorkerLink(FileDescriptor socket)
    : pool_(SharedPool::make()), connection_(Connection::make(std::move(socket))) {}

// Blocks until a message of this type. Any other one cannot be, and is answered by hanging up; so is a setup for which there is no
// memory.
WorkerLink::Got WorkerLink::receive(MessageType type, InMessage& message) {
  switch (connection_->wait_and_receive(message)) {
    case Received::kMessage:
      if (message.type == type && (message.unread == 0 || type == MessageType::kBatch)) return Got::kBatch;
      break;
    case Received::kNothing:
      return Got::kInterrupted;
    case Received::kClosed:
    case Received::kCorrupt:
      break;
  }
  connection_->shut_down();
  return Got::kClosed;
}

WorkerLink::Got WorkerLink::receive_setup(Bytes& setup) {
  if (!std::exchange(said_hello_, true) && !connection_->send_all(make_hello(Role::kWorker))) return Got::kClosed;
  InMessage message;
  if (!heard_hello_) {
    const Got got = receive(MessageType::kHello, message);
    if (got != Got::kBatch) return got;
    Hello hello;
    heard_hello_ = parse(message, hello) && hello.version == kProtocolVersion && hello.role == Role::kEngine;
    if (!heard_hello_) {
      connection_->shut_down();
      return Got::kClosed;
    }
  }
  const Got got = receive(MessageType::kSetup, message);
  if (got == Got::kBatch) setup = std::move(message.body);
  return got;
}

bool WorkerLink::send_ready(const std::string& about) {
  return connection_->send_all(make_text(MessageType::kReady, about));
}

bool WorkerLink::send_init_failed(const std::string& traceback) {
  return connection_->send_all(make_text(MessageType::kInitFailed, traceback));
}

WorkerLink::Got WorkerLink::next_batch(std::uint64_t& id, BatchMessage& batch) {
  InMessage message;
  const Got got = receive(MessageType::kBatch, message);
  if (got != Got::kBatch) return got;
  id = message.id;
  batch.unread = message.unread;
  if (batch.unread > 0) return got;
  const std::size_t size = message.body.size();
  try {
    if (parse(message, batch)) return got;
  } catch (const std::bad_alloc&) {
    batch = {};
    batch.unread = size;
    return got;
  }
  connection_->shut_down();
  return Got::kClosed;
}

bool WorkerLink::reply(std::uint64_t id, const ReplyMessage& reply) {
  return connection_->send_all(make_reply(id, reply));
}

}  // namespace service_streamer::ipc
