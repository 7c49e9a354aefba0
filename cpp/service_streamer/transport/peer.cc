#include "service_streamer/transport/peer.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <chrono>
#include <utility>

namespace service_streamer::ipc {

// Blocks from the peer refer to the connection, so the connection and its callback may outlive this object. The
// callback must not use `this`.
Peer::Peer(Poller& poller, std::uint64_t key, FileDescriptor socket)
    : poller_(poller),
      key_(key),
      connection_(Connection::make(std::move(socket),
                                   [&waiter = poller.waiter(), released = released_] {
                                     released->store(true, std::memory_order_release);
                                     waiter.parker.unpark();
                                   })),
      watched_(EPOLLIN) {
  poller_.watch(connection_->fd(), key_, watched_);
}

Peer::~Peer() {
  poller_.forget(connection_->fd());
  connection_->shut_down();  // blocks from the peer may keep the connection, but the socket must end now
}

void Peer::send(OutMessage message) {
  if (broken() || sending_ended_) return;
  attempt([&] { hung_up_ = !connection_->send(std::move(message)); });
  update_watch();
}

void Peer::flush() {
  if (broken() || sending_ended_) return;
  attempt([&] { hung_up_ = !connection_->flush(); });
  update_watch();
}

void Peer::send_rest(TimePoint deadline) {
  using std::chrono::milliseconds;
  while (!broken() && !sending_ended_ && unsent() > 0) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (left <= milliseconds::zero()) return;
    pollfd writable{.fd = connection_->fd(), .events = POLLOUT, .revents = 0};
    poll(&writable, 1, static_cast<int>(left.count()));
    flush();
  }
}

void Peer::flush_releases() {
  if (released_->load(std::memory_order_relaxed) && released_->exchange(false, std::memory_order_acquire)) flush();
}

bool Peer::receive(InMessage& message) {
  if (broken_) return false;
  auto received = Connection::Received::kCorrupt;
  attempt([&] { received = connection_->receive(message); });
  broken_ = received == Connection::Received::kClosed || received == Connection::Received::kCorrupt;
  return received == Connection::Received::kMessage;
}

void Peer::read(bool wanted) {
  reading_ = wanted;
  update_watch();
}

void Peer::end_sending() {
  sending_ended_ = true;
  shutdown(connection_->fd(), SHUT_WR);
  update_watch();
}

void Peer::update_watch() {
  const std::uint32_t wanted =
      (reading_ ? EPOLLIN : 0U) | (!sending_ended_ && connection_->unsent() > 0 ? EPOLLOUT : 0U);
  if (wanted == watched_ || broken()) return;
  watched_ = wanted;
  poller_.change(connection_->fd(), key_, wanted);
}

}  // namespace service_streamer::ipc
