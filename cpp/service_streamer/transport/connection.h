#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/shared_memory/shared_memory.h"
#include "service_streamer/transport/address.h"
#include "service_streamer/transport/inbox.h"
#include "service_streamer/transport/outbox.h"
#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {

// Messages over one Unix stream socket, and the blocks lent over it. One thread uses a connection; only released() and
// ring() may be called by any thread. When the first release is pending, released() calls `on_release`, which should
// make the thread call flush().
//
// send(), flush() and receive() never block. While unsent() > 0, the owner watches the socket for writability.
// send_all() and wait_and_receive() block; they are for a worker process, whose main thread serves this socket only.
class Connection : public BlockOwner, public std::enable_shared_from_this<Connection> {
 public:
  static std::shared_ptr<Connection> make(FileDescriptor socket, std::function<void()> on_release = {});
  ~Connection() override;  // shut_down(), but not in a forked child

  int fd() const { return socket_.get(); }

  // Queue a message, and write what the socket takes. False: the peer has hung up, and unsent messages are dropped;
  // messages from the peer can still be received. The queue is not bounded: the owner checks unsent() and stops
  // sending.
  bool send(OutMessage message);
  bool flush();
  std::size_t unsent() const { return outbox_.unsent(); }  // bytes

  using Received = ipc::Received;
  // Receives one message. kNothing: wait for readability, level-triggered, because more may be readable already.
  // kClosed: the peer hung up, and everything it sent has been received. kCorrupt: the peer broke the protocol; call
  // shut_down(). kReleased messages are handled inside.
  Received receive(InMessage& message);

  // Blocks until a message, the end of file, an error, or a signal, the deadline or ring() (kNothing).
  Received wait_and_receive(InMessage& message, TimePoint deadline = TimePoint::max());
  // Ends this or the next wait in wait_and_receive(). Any thread.
  void ring() EXCLUDES(mutex_);
  // Blocks until everything is written. False: the peer has hung up.
  bool send_all(OutMessage message);

  // Both sides see the end of file. Blocks lent to the peer are released but not reused, because the peer may still
  // read them. The descriptor stays open until the destructor, so that it can be removed from an epoll first.
  void shut_down();

  void released(std::uint64_t handle, bool reusable) noexcept override EXCLUDES(mutex_);
  MappingCache* mappings() override { return &mappings_; }

 private:
  Connection(FileDescriptor socket, std::function<void()> on_release);
  void lend(OutMessage& message);
  bool take_back(const InMessage& message);
  bool wait(TimePoint deadline) EXCLUDES(mutex_);
  void wake_up();

  // Constant after construction.
  const FileDescriptor socket_;
  const std::function<void()> on_release_;
  const std::uint32_t generation_ = ForkLock::generation();

  // Own synchronisation.
  MappingCache mappings_;

  // Of the thread that uses the connection.
  Outbox outbox_;
  Inbox inbox_;
  std::unordered_map<std::uint64_t, BlockRef> lent_;
  std::uint64_t next_handle_ = 0;
  std::vector<std::uint64_t> release_buffer_;  // reused, to avoid allocations
  FileDescriptor wake_event_;                  // an eventfd: wakes wait_and_receive() when a release is pending
  bool wake_event_made_ = false;
  bool cannot_send_ = false;  // the peer has hung up

  Mutex mutex_;
  std::vector<std::uint64_t> pending_releases_ GUARDED_BY(mutex_);  // not yet sent to the peer
  bool asleep_ GUARDED_BY(mutex_) = false;
  bool rung_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace service_streamer::ipc
