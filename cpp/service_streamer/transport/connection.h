#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/shared_memory/shared_memory.h"
#include "service_streamer/transport/address.h"
#include "service_streamer/transport/inbox.h"
#include "service_streamer/transport/outbox.h"
#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {

// Messages over one Unix stream socket. Used by one thread, but for released() (a block that came from the peer is gone here):
// that may be any thread, and `on_release` is then called once per filling, so that the owner's thread comes to flush().
//
// Non-blocking: send() queues and writes what the socket takes; the owner watches for writability while unsent() > 0. The
// blocking twins are for a worker, whose whole life is one such socket.
class Connection : public BlockOwner, public std::enable_shared_from_this<Connection> {
 public:
  static std::shared_ptr<Connection> make(FileDescriptor socket, std::function<void()> on_release = {});
  ~Connection() override;  // shut_down(), but not in a forked child

  int fd() const { return socket_.get(); }

  // False: the peer is gone (the rest of what was queued is dropped; what it sent before can still be received). A peer that does not read costs memory: the owner looks
  // at unsent() and stops giving it work.
  bool send(OutMessage message);
  bool flush();
  std::size_t unsent() const { return outbox_.unsent(); }  // bytes

  using Received = ipc::Received;
  // One message at a time, until kNothing: then the owner waits for readability (level-triggered: there may be more to read
  // already). kReleased messages are dealt with inside. kClosed: the peer hung up, and everything it sent before was received.
  // kCorrupt: it does not keep to the protocol; shut_down().
  Received receive(InMessage& message);

  // Blocks until a message, the end of file or a signal (kNothing).
  Received wait_and_receive(InMessage& message);
  // Blocks until everything is written; false: the peer is gone.
  bool send_all(OutMessage message);

  // Both sides see the end of file. Blocks lent to the peer come back, never to be written again: it may still read them.
  // The descriptor stays open until the connection goes, so that it can be taken out of an epoll before.
  void shut_down();

  void released(std::uint64_t handle, bool reusable) noexcept override EXCLUDES(mutex_);
  MappingCache* mappings() override { return &mappings_; }

 private:
  Connection(FileDescriptor socket, std::function<void()> on_release);
  void lend(OutMessage& message);
  bool take_back(const InMessage& message);
  bool sleep() EXCLUDES(mutex_);

  // Constant after construction.
  const FileDescriptor socket_;
  const std::function<void()> on_release_;
  const std::uint32_t generation_ = ForkLock::generation();

  // Own synchronisation.
  MappingCache mappings_;

  // Of the one thread.
  Outbox outbox_;
  Inbox inbox_;
  std::unordered_map<std::uint64_t, BlockRef> lent_;
  std::uint64_t next_handle_ = 0;
  std::vector<std::uint64_t> sending_;  // releases, to keep their memory
  FileDescriptor bell_;  // an eventfd that ends the sleep of wait_and_receive() when there is one to send
  bool bell_made_ = false;
  bool gone_ = false;  // nothing can be sent any more

  Mutex mutex_;
  std::vector<std::uint64_t> releases_ GUARDED_BY(mutex_);  // to be told to the peer
  bool asleep_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace service_streamer::ipc
