#include "service_streamer/transport/connection.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "service_streamer/waiting/parker.h"
#include "service_streamer/wire/wire.h"

namespace service_streamer::ipc {

Connection::Connection(FileDescriptor socket, std::function<void()> on_release)
    : socket_(std::move(socket)), on_release_(std::move(on_release)) {}

std::shared_ptr<Connection> Connection::make(FileDescriptor socket, std::function<void()> on_release) {
  return std::shared_ptr<Connection>(new Connection(std::move(socket), std::move(on_release)));
}

Connection::~Connection() {
  if (generation_ == ForkLock::generation()) shut_down();
}

// --- blocks ---

// Gives each block of the message a handle, writes the handles into its table, and keeps the blocks until they are
// released.
void Connection::lend(OutMessage& message) {
  char* entry = message.head.data() + sizeof(wire::Start);
  for (const BlockRef& block : message.blocks) {
    const std::uint64_t handle = next_handle_++;
    lent_.emplace(handle, block);
    std::memcpy(entry + offsetof(wire::Block, handle), &handle, sizeof handle);
    entry += sizeof(wire::Block);
  }
}

// Handles a kReleased. False: the peer released a block that it was not lent.
bool Connection::take_back(const InMessage& message) {
  std::vector<std::uint64_t> handles;
  if (!parse(message, handles) || handles.empty()) return false;
  for (const std::uint64_t handle : handles) {
    const auto place = lent_.find(handle & ~wire::kHandleFlag);
    if (place == lent_.end()) return false;
    if ((handle & wire::kHandleFlag) != 0) place->second->mark_not_reusable();
    lent_.erase(place);
  }
  return true;
}

void Connection::released(std::uint64_t handle, bool reusable) noexcept {
  bool first = false;
  bool wake = false;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    try {
      pending_releases_.push_back(reusable ? handle : handle | wire::kHandleFlag);
    } catch (const std::bad_alloc&) {
      return;  // the peer keeps the block until the connection ends
    }
    first = pending_releases_.size() == 1;
    wake = first && asleep_;
  }
  if (wake) wake_up();
  if (first && on_release_) on_release_();
}

void Connection::ring() {
  bool wake = false;
  {
    MutexLock lock(mutex_);
    wake = !std::exchange(rung_, true) && asleep_;
  }
  if (wake) wake_up();
}

void Connection::wake_up() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_event_.get(), &one, sizeof one);
}

// --- sending ---

bool Connection::send(OutMessage message) {
  if (cannot_send_) return false;
  lend(message);
  outbox_.push(std::move(message));
  return flush();
}

bool Connection::flush() {
  if (cannot_send_) return false;
  {
    MutexLock lock(mutex_);
    release_buffer_.swap(pending_releases_);
  }
  if (!release_buffer_.empty()) {
    outbox_.push(make_ids(MessageType::kReleased, release_buffer_));
    release_buffer_.clear();
  }
  if (outbox_.flush(socket_.get())) return true;
  cannot_send_ = true;
  outbox_.clear();
  return false;
}

bool Connection::send_all(OutMessage message) {
  if (!send(std::move(message))) return false;
  while (unsent() > 0) {
    pollfd writable{.fd = socket_.get(), .events = POLLOUT, .revents = 0};
    poll(&writable, 1, -1);
    if (!flush()) return false;
  }
  return true;
}

// --- receiving ---

Received Connection::receive(InMessage& message) {
  for (;;) {
    const Received received = inbox_.receive(socket_.get(), message);
    if (received != Received::kMessage) return received;
    if (message.type != MessageType::kReleased) {
      message.owner = shared_from_this();
      return received;
    }
    if (!take_back(message)) return Received::kCorrupt;
  }
}

Received Connection::wait_and_receive(InMessage& message, TimePoint deadline) {
  for (;;) {
    const Received received = receive(message);
    if (received != Received::kNothing) return received;
    if (!flush()) return Received::kClosed;
    if (deadline <= Clock::now() || !wait(deadline)) return Received::kNothing;
  }
}

// Blocks until the socket is ready or a release is pending. False: a signal, the deadline or ring().
bool Connection::wait(TimePoint deadline) {
  if (!std::exchange(wake_event_made_, true)) {
    const ForkLock no_fork;
    // If this fails, releases are sent with the next message.
    wake_event_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  }
  {
    // Checked and set under one lock: otherwise a release in between would not wake this thread.
    MutexLock lock(mutex_);
    if (!pending_releases_.empty()) return true;
    if (std::exchange(rung_, false)) return false;
    asleep_ = true;
  }
  std::array<pollfd, 2> watched{{{.fd = socket_.get(), .events = POLLIN, .revents = 0},
                                 {.fd = wake_event_.get(), .events = POLLIN, .revents = 0}}};
  if (unsent() > 0) watched[0].events |= POLLOUT;
  const timespec left = deadline != TimePoint::max() ? time_left(deadline) : timespec{};
  const int ready = ppoll(watched.data(), watched.size(), deadline != TimePoint::max() ? &left : nullptr, nullptr);
  bool rung = false;
  {
    MutexLock lock(mutex_);
    asleep_ = false;
    rung = std::exchange(rung_, false);
  }
  if (ready > 0 && watched[1].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t received = read(wake_event_.get(), &count, sizeof count);
  }
  return ready > 0 && !rung;
}

void Connection::shut_down() {
  shutdown(socket_.get(), SHUT_RDWR);
  cannot_send_ = true;
  outbox_.clear();
  inbox_.clear();
  {
    MutexLock lock(mutex_);
    closed_ = true;
    pending_releases_.clear();
  }
  const auto lent = std::exchange(lent_, {});
  for (const auto& [handle, block] : lent) block->mark_not_reusable();
}

}  // namespace service_streamer::ipc
