#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/transport/connection.h"
#include "service_streamer/transport/poller.h"

namespace service_streamer::ipc {

// Another process, at the other end of a connection that a poller watches. Used by the IO thread only; no call blocks
// but send_rest().
//
// A peer becomes broken if it hangs up, breaks the protocol, or causes a std::bad_alloc. Nothing more is sent to a
// broken peer. The owner checks broken() and destroys the peer. If the peer hung up, messages that it sent before can
// still be received.
class Peer {
 public:
  // Throws std::system_error.
  Peer(Poller& poller, std::uint64_t key, FileDescriptor socket);
  ~Peer();  // closes the connection: the process sees the end of file
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Messages that the socket does not take are queued. flush() sends them when the poller reports EPOLLOUT.
  void send(OutMessage message);
  void flush();
  // Tells the peer which of its blocks were released here, if any.
  void flush_releases();
  std::size_t unsent() const { return connection_->unsent(); }

  // False: no message for now, or the peer is broken.
  bool receive(InMessage& message);

  // For a thread that waits for messages beside the poller.
  std::shared_ptr<const Connection> connection() const { return connection_; }

  // Sets whether the poller reports readability. It always reports that the peer hung up.
  void read(bool wanted);

  // The process sees the end of file, and can still send.
  void end_sending();

  // Blocks until everything is written, the peer is broken, or the deadline.
  void send_rest(TimePoint deadline);

  // Calls `step`. If it throws std::bad_alloc, the peer becomes broken.
  template <typename Step>
  void attempt(Step step) {
    try {
      step();
    } catch (const std::bad_alloc&) {
      broken_ = true;
    }
  }

  void set_broken() { broken_ = true; }
  bool broken() const { return broken_ || hung_up_; }

 private:
  void update_watch();

  Poller& poller_;
  const std::uint64_t key_;
  const std::shared_ptr<std::atomic<bool>> released_ = std::make_shared<std::atomic<bool>>(false);
  const std::shared_ptr<Connection> connection_;
  std::uint32_t watched_;
  bool reading_ = true;
  bool sending_ended_ = false;
  bool hung_up_ = false;  // detected while sending
  bool broken_ = false;
};

}  // namespace service_streamer::ipc
