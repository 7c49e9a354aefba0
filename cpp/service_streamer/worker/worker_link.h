#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/shared_memory/shared_memory.h"
#include "service_streamer/transport/connection.h"
#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {

// The worker process's end of its socket to the Server. One thread uses it: it receives batches and sends replies, and
// blocks meanwhile. Any thread may release the blocks of a batch. The server is told with the next reply, or at once
// while the thread waits.
class WorkerLink {
 public:
  explicit WorkerLink(FileDescriptor socket);

  enum class ReceiveStatus { kReceived, kClosed, kInterrupted, kNothing };

  // Blocks until the server's hello and the setup are received. After kInterrupted, call it again.
  ReceiveStatus receive_setup(Bytes& setup);
  // Block until the message is written. False: the server has hung up.
  bool send_ready(const std::string& about);
  bool send_init_failed(const std::string& traceback);

  // Blocks until a batch, the end of file or an invalid message (kClosed), a signal or ring() (kInterrupted), or the
  // deadline (kNothing). If there is no memory for a batch, it comes with `dropped_bytes` only; reply with
  // `out_of_memory` then.
  ReceiveStatus next_batch(std::uint64_t& id, BatchMessage& batch, TimePoint deadline = TimePoint::max());
  // Ends this or the next call of next_batch() early. Any thread.
  void ring() { connection_->ring(); }
  // Whether the server wants no reply to this batch, which next_batch() gave. Known after a later next_batch().
  bool cancelled(std::uint64_t id) const;
  // How many batches this worker may work on at a time; 0: the server has not told yet. Known after a call of
  // next_batch().
  std::size_t places() const { return places_; }
  // Tells the server how many of the batches are paused, so that it sends so many more. Blocks until that is written.
  // False: the server has hung up.
  bool send_paused(std::size_t count);
  // Blocks until the reply is written. False: the server has hung up.
  bool reply(std::uint64_t id, const ReplyMessage& reply);

  const std::shared_ptr<SharedPool>& pool() const { return pool_; }

 private:
  ReceiveStatus receive(MessageType type, InMessage& message, TimePoint deadline = TimePoint::max());
  bool cancel(const InMessage& message);

  const std::shared_ptr<SharedPool> pool_;
  const std::shared_ptr<Connection> connection_;
  std::unordered_map<std::uint64_t, bool> open_;  // batches without a reply; true: cancelled
  std::size_t places_ = 0;
  bool sent_hello_ = false;
  bool received_hello_ = false;
};

}  // namespace service_streamer::ipc
