#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/shared_memory/shared_memory.h"
#include "service_streamer/transport/connection.h"
#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {

// The worker process' side: one thread that takes batches and answers them, over one socket, blocking. Blocks that it was sent may
// be dropped by any thread; that is told with the next reply, or at once while it sleeps.
class WorkerLink {
 public:
  explicit WorkerLink(FileDescriptor socket);

  enum class Got { kBatch, kClosed, kInterrupted };

  // Blocks until the engine's hello and the setup came: kBatch stands for that. After kInterrupted it goes on where it was.
  Got receive_setup(Bytes& setup);
  // Block until written; false: the engine is gone.
  bool send_ready(const std::string& about);
  bool send_init_failed(const std::string& traceback);

  // Blocks until a batch (also one for which there is no memory: `unread` says so, and it is to be answered with that), the end of
  // file (or anything that is not the protocol), or a signal.
  Got next_batch(std::uint64_t& id, BatchMessage& batch);
  // Blocks until written; false: the engine is gone.
  bool reply(std::uint64_t id, const ReplyMessage& reply);

  const std::shared_ptr<SharedPool>& pool() const { return pool_; }

 private:
  Got receive(MessageType type, InMessage& message);

  const std::shared_ptr<SharedPool> pool_;
  const std::shared_ptr<Connection> connection_;
  bool said_hello_ = false;
  bool heard_hello_ = false;
};

}  // namespace service_streamer::ipc
