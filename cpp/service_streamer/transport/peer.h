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

// Another process at the end of a connection that a poller watches. Used by the IO thread, or who has its turn. A peer that is broken (it hung
// up, does not keep to the protocol, or has us do what there is no memory for) is not sent anything any more; its owner looks for that
// and lets it go. Of one that hung up, what it said before can still be received.
class Peer {
 public:
  // Throws std::system_error.
  Peer(Poller& poller, std::uint64_t key, FileDescriptor socket);
  ~Peer();  // it sees the end of file
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Never block: what the peer does not read is kept, and sent by flush() when the poller tells of it.
  void send(OutMessage message);
  void flush();
  // Tells it which of its blocks have gone here, if any have.
  void flush_releases();
  std::size_t unsent() const { return connection_->unsent(); }

  // False: nothing more for now, or it is broken.
  bool receive(InMessage& message);

  // Whether the poller tells when there is something to read. It tells of the end in any case.
  void read(bool wanted);

  // For who watches it instead of the poller; its descriptor stays open as long as this.
  std::shared_ptr<const Connection> connection() const { return connection_; }

  // It sees the end of file, and can still be heard.
  void end_sending();

  // Blocks until everything is written, it is broken, or the time is over.
  void send_rest(TimePoint deadline);

  // Does something for it; it is broken where there is no memory for that.
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
  bool ended_ = false;
  bool hung_up_ = false;  // nothing can be sent any more
  bool broken_ = false;
};

}  // namespace service_streamer::ipc
