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

// A peer is not trusted: at first at most this much memory is allocated for a body.
constexpr std::size_t kFirstAllocation = std::size_t{16} << 20;

bool may_have_blocks(MessageType type) {
  return type == MessageType::kBatch || type == MessageType::kReply || type == MessageType::kSubmit ||
         type == MessageType::kResults;
}

bool plausible(const FrameHeader& header) {
  if (header.magic != kMagic || header.reserved != 0 || header.reserved2 != 0) return false;
  if (header.type < MessageType::kHello || header.type > MessageType::kPaused) return false;
  if (header.body > kMaxBody || header.descriptors > kMaxDescriptors) return false;
  if (header.descriptors > 0 && !may_have_blocks(header.type)) return false;
  return header.descriptors <= header.body / sizeof(wire::Block);
}

}  // namespace

Received Inbox::receive(int socket, InMessage& message) try {
  for (;;) {
    bool corrupt = false;
    if (next(message, corrupt)) return Received::kMessage;
    if (corrupt || has_extra_descriptors()) return Received::kCorrupt;
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
  return Received::kCorrupt;  // no memory even for the lists of descriptors
}

void Inbox::clear() {
  buffer_.reset();
  begin_ = end_ = 0;
  has_header_ = drained_ = no_memory_ = false;
  body_ = Bytes();
  filled_ = 0;
  groups_.clear();
  descriptor_count_ = 0;
}

// Returns the next message if it has been read in full.
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
    no_memory_ = false;
    allocate_body(std::min<std::size_t>(header_.body, kFirstAllocation));
    const std::size_t here = std::min<std::size_t>(header_.body, end_ - begin_);
    if (here > 0 && !no_memory_) std::memcpy(data_, buffer_.get() + begin_, here);
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
  message.dropped_bytes = no_memory_ ? header_.body : 0;
  has_header_ = false;
  return true;
}

// Grows the memory of the body to `size` bytes, and keeps the bytes read so far.
void Inbox::allocate_body(std::size_t size) try {
  std::byte* data = nullptr;
  Bytes larger = Bytes::allocate(size, data);
  if (filled_ > 0) std::memcpy(data, data_, filled_);
  body_ = std::move(larger);
  data_ = data;
} catch (const std::bad_alloc&) {
  no_memory_ = true;
  body_ = Bytes();
}

// Takes the descriptors of the message that is now complete. Lost ones become empty descriptors. False: there are too
// few.
bool Inbox::take_descriptors(std::vector<FileDescriptor>& descriptors) {
  const std::size_t wanted = header_.descriptors;
  descriptors.reserve(wanted);
  while (descriptors.size() < wanted) {
    if (groups_.empty()) return false;
    DescriptorGroup& group = groups_.front();
    const std::size_t missing = wanted - descriptors.size();
    if (group.descriptors.size() > missing) return false;
    const std::size_t end =
        descriptors.size() + (group.truncated ? std::min(missing, kDescriptorsAtOnce) : group.descriptors.size());
    for (FileDescriptor& fd : group.descriptors) descriptors.push_back(std::move(fd));
    descriptor_count_ -= group.descriptors.size();
    while (descriptors.size() < end) descriptors.emplace_back();
    groups_.pop_front();
  }
  return true;
}

bool Inbox::has_all_descriptors() const {
  std::size_t missing = header_.descriptors;
  for (const DescriptorGroup& group : groups_) {
    missing -= std::min(missing, group.truncated ? kDescriptorsAtOnce : group.descriptors.size());
  }
  return missing == 0;
}

// Returns whether more descriptors have come than the current message may have.
bool Inbox::has_extra_descriptors() const {
  if (has_header_) return descriptor_count_ > header_.descriptors || groups_.size() > header_.descriptors;
  return begin_ == end_ ? !groups_.empty() : groups_.size() > 1;
}

Inbox::Read Inbox::read(int socket) {
  std::byte* to = nullptr;
  std::size_t room = 0;
  if (has_header_) {
    // The memory is full: double it.
    if (!no_memory_ && filled_ == body_.size()) allocate_body(std::min<std::size_t>(header_.body, 2 * filled_));
    to = no_memory_ ? buffer_.get() : data_ + filled_;
    room = no_memory_ ? std::min<std::size_t>(header_.body - filled_, kBuffer) : body_.size() - filled_;
  } else {
    if (buffer_ == nullptr) buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBuffer);
    if (begin_ > 0) {
      std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
    }
    to = buffer_.get() + end_;
    room = kBuffer - end_;
  }

  // Once the message has its descriptors, recv() is enough: the kernel closes any further descriptors.
  const ssize_t received = has_header_ && has_all_descriptors() ? recv(socket, to, room, MSG_DONTWAIT)
                                                                : read_with_descriptors(socket, to, room);
  if (received < 0) {
    if (errno == EINTR) return Read::kFull;
    return errno == EAGAIN || errno == EWOULDBLOCK ? Read::kNothing : Read::kClosed;
  }
  if (received == 0) return Read::kClosed;
  (has_header_ ? filled_ : end_) += static_cast<std::size_t>(received);
  return static_cast<std::size_t>(received) == room ? Read::kFull : Read::kShort;
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
  const ssize_t received = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received < 0) return received;
  const bool truncated = (header.msg_flags & MSG_CTRUNC) != 0;
  if (CMSG_FIRSTHDR(&header) == nullptr && !truncated) return received;

  DescriptorGroup group{.descriptors = {}, .truncated = truncated};
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::array<int, kDescriptorsAtOnce> fds{};
    std::memcpy(fds.data(), CMSG_DATA(part), count * sizeof(int));
    std::size_t taken = 0;
    try {
      group.descriptors.reserve(count);
      while (taken < count) group.descriptors.emplace_back(fds[taken++]);
    } catch (...) {
      for (; taken < count; ++taken) close(fds[taken]);
      throw;
    }
  }
  const std::size_t count = group.descriptors.size();
  groups_.push_back(std::move(group));
  descriptor_count_ += count;
  return received;
}

}  // namespace service_streamer::ipc
