#include "service_streamer/transport/inbox.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "service_streamer/wire/frame.h"
#include "service_streamer/wire/wire.h"

namespace service_streamer::ipc {
namespace {

constexpr std::size_t kBuffer = std::size_t{64} << 10;

// Believed of a body's size before so much of it came.
constexpr std::size_t kTrusted = std::size_t{16} << 20;

bool may_have_blocks(MessageType type) {
  return type == MessageType::kBatch || type == MessageType::kReply || type == MessageType::kSubmit ||
         type == MessageType::kResults;
}

bool plausible(const FrameHeader& header) {
  if (header.magic != kMagic || header.reserved != 0 || header.reserved2 != 0) return false;
  if (header.type < MessageType::kHello || header.type > MessageType::kClosed) return false;
  if (header.body > kMaxBody || header.descriptors > kMaxDescriptors) return false;
  if (header.descriptors > 0 && !may_have_blocks(header.type)) return false;
  return header.descriptors <= header.body / sizeof(wire::Block);
}

}  // namespace

Received Inbox::receive(int socket, InMessage& message) try {
  for (;;) {
    bool corrupt = false;
    if (next(message, corrupt)) return Received::kMessage;
    if (corrupt || surplus()) return Received::kCorrupt;
    if (std::exchange(drained_, false)) return Received::kNothing;
    switch (read(socket)) {
      case Read::kFull:
        break;
      case Read::kShort:
        drained_ = true;
        break;
      case Read::kNothing:
        return Received::kNothing;
      case Read::kClosed:
        return Received::kClosed;
      case Read::kError:
        return Received::kCorrupt;
    }
  }
} catch (const std::bad_alloc&) {
  return Received::kCorrupt;  // more than this machine has
}

void Inbox::clear() {
  buffer_.reset();
  begin_ = end_ = 0;
  has_header_ = drained_ = unread_ = false;
  body_ = Bytes();
  filled_ = 0;
  chunks_.clear();
  descriptors_ = 0;
}

// The next message, if all of it is here.
bool Inbox::next(InMessage& message, bool& corrupt) {
  if (!has_header_) {
    if (end_ - begin_ < sizeof header_) return false;
    std::memcpy(&header_, buffer_.get() + begin_, sizeof header_);
    if (!plausible(header_)) {
      corrupt = true;
      return false;
    }
    begin_ += sizeof header_;
    has_header_ = true;
    filled_ = 0;
    unread_ = false;
    make_room(std::min<std::size_t>(header_.body, kTrusted));
    const std::size_t here = std::min<std::size_t>(header_.body, end_ - begin_);
    if (here > 0 && !unread_) std::memcpy(data_, buffer_.get() + begin_, here);
    filled_ = here;
    begin_ += here;
  }
  if (filled_ < header_.body) return false;
  message.descriptors.clear();
  if (!take_descriptors(message.descriptors)) {
    corrupt = true;
    return false;
  }
  message.type = header_.type;
  message.id = header_.id;
  message.body = std::exchange(body_, Bytes());
  message.unread = unread_ ? header_.body : 0;
  has_header_ = false;
  return true;
}

// For so much of the body, also what came of it already.
void Inbox::make_room(std::size_t size) try {
  std::byte* data = nullptr;
  Bytes larger = Bytes::allocate(size, data);
  if (filled_ > 0) std::memcpy(data, data_, filled_);
  body_ = std::move(larger);
  data_ = data;
} catch (const std::bad_alloc&) {
  unread_ = true;
  body_ = Bytes();
}

// Those of the message that is complete now.
bool Inbox::take_descriptors(std::vector<FileDescriptor>& descriptors) {
  const std::size_t wanted = header_.descriptors;
  descriptors.reserve(wanted);
  while (descriptors.size() < wanted) {
    if (chunks_.empty()) return false;
    Chunk& chunk = chunks_.front();
    const std::size_t missing = wanted - descriptors.size();
    if (chunk.descriptors.size() > missing) return false;
    const std::size_t end =
        descriptors.size() + (chunk.truncated ? std::min(missing, kDescriptorsAtOnce) : chunk.descriptors.size());
    for (FileDescriptor& fd : chunk.descriptors) descriptors.push_back(std::move(fd));
    descriptors_ -= chunk.descriptors.size();
    while (descriptors.size() < end) descriptors.emplace_back();
    chunks_.pop_front();
  }
  return true;
}

bool Inbox::has_all_descriptors() const {
  std::size_t missing = header_.descriptors;
  for (const Chunk& chunk : chunks_) {
    missing -= std::min(missing, chunk.truncated ? kDescriptorsAtOnce : chunk.descriptors.size());
  }
  return missing == 0;
}

// Whether more descriptors came than the message they came with may have.
bool Inbox::surplus() const {
  if (has_header_) return descriptors_ > header_.descriptors || chunks_.size() > header_.descriptors;
  return begin_ == end_ ? !chunks_.empty() : chunks_.size() > 1;
}

Inbox::Read Inbox::read(int socket) {
  std::byte* to = nullptr;
  std::size_t room = 0;
  if (has_header_) {
    // Twice as much, now that this came.
    if (!unread_ && filled_ == body_.size()) make_room(std::min<std::size_t>(header_.body, 2 * filled_));
    to = unread_ ? buffer_.get() : data_ + filled_;
    room = unread_ ? std::min<std::size_t>(header_.body - filled_, kBuffer) : body_.size() - filled_;
  } else {
    if (buffer_ == nullptr) buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBuffer);
    if (begin_ > 0) {
      std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
    }
    to = buffer_.get() + end_;
    room = kBuffer - end_;
  }

  // Once the message has its descriptors, the kernel may close what else comes.
  const ssize_t got = has_header_ && has_all_descriptors() ? recv(socket, to, room, MSG_DONTWAIT)
                                                           : read_with_descriptors(socket, to, room);
  if (got < 0) {
    if (errno == EINTR) return Read::kFull;
    return errno == EAGAIN || errno == EWOULDBLOCK ? Read::kNothing : Read::kClosed;
  }
  if (got == 0) return Read::kClosed;
  (has_header_ ? filled_ : end_) += static_cast<std::size_t>(got);
  return static_cast<std::size_t>(got) == room ? Read::kFull : Read::kShort;
}

ssize_t Inbox::read_with_descriptors(int socket, std::byte* data, std::size_t size) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kDescriptorsAtOnce * sizeof(int))> control;
  iovec piece{.iov_base = data, .iov_len = size};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();

  const ForkLock no_fork;
  const ssize_t got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return got;
  const bool truncated = (header.msg_flags & MSG_CTRUNC) != 0;
  if (CMSG_FIRSTHDR(&header) == nullptr && !truncated) return got;

  Chunk chunk{.descriptors = {}, .truncated = truncated};
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::array<int, kDescriptorsAtOnce> fds{};
    std::memcpy(fds.data(), CMSG_DATA(part), count * sizeof(int));
    std::size_t taken = 0;
    try {
      chunk.descriptors.reserve(count);
      while (taken < count) chunk.descriptors.emplace_back(fds[taken++]);
    } catch (...) {
      for (; taken < count; ++taken) close(fds[taken]);
      throw;
    }
  }
  const std::size_t count = chunk.descriptors.size();
  chunks_.push_back(std::move(chunk));
  descriptors_ += count;
  return got;
}

}  // namespace service_streamer::ipc
