#include "service_streamer/transport/outbox.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "service_streamer/wire/frame.h"
#include "service_streamer/wire/wire.h"

namespace service_streamer::ipc {
namespace {

constexpr std::size_t kMaxIovecs = 1024;

// Marks the blocks in the table that are sent without a descriptor. Returns how many are sent with one.
std::uint32_t mark_lost(OutMessage& message, bool all) {
  std::uint32_t left = 0;
  for (std::size_t i = 0; i < message.blocks.size(); ++i) {
    if (!all && message.blocks[i]->fd() >= 0) {
      ++left;
      continue;
    }
    char* entry = message.head.data() + sizeof(wire::Start) + i * sizeof(wire::Block);
    wire::Block block{};
    std::memcpy(&block, entry, sizeof block);
    block.handle |= wire::kHandleFlag;
    std::memcpy(entry, &block, sizeof block);
  }
  return left;
}

}  // namespace

// The arguments of one sendmsg.
struct Outbox::Gathered {
  std::array<iovec, kMaxIovecs> pieces;
  std::size_t count = 0;
  std::size_t bytes = 0;
  std::array<int, kDescriptorsAtOnce> descriptors;
  std::size_t descriptor_count = 0;
  std::size_t next_block = 0;  // of the first message, after this sendmsg

  void add(const void* data, std::size_t size) {
    pieces[count++] = {.iov_base = const_cast<void*>(data), .iov_len = size};
    bytes += size;
  }
};

const void* Outbox::Entry::data(std::size_t index) const {
  if (index == 0) return &header;
  if (index == 1) return message.head.data();
  return message.tail[index - 2].data();
}

std::size_t Outbox::Entry::size(std::size_t index) const {
  if (index == 0) return sizeof header;
  if (index == 1) return message.head.size();
  return message.tail[index - 2].size();
}

void Outbox::push(OutMessage message) {
  std::uint64_t body = message.head.size();
  for (const Bytes& bytes : message.tail) body += bytes.size();
  const std::uint32_t descriptors = mark_lost(message, message.blocks.size() > kMaxDescriptors);
  const FrameHeader header{.magic = kMagic,
                           .type = message.type,
                           .reserved = 0,
                           .descriptors = descriptors,
                           .reserved2 = 0,
                           .body = body,
                           .id = message.id};
  queue_.push_back({.header = header, .message = std::move(message), .descriptors = descriptors});
  unsent_ += sizeof(FrameHeader) + body;
}

void Outbox::clear() {
  queue_.clear();
  unsent_ = 0;
}

void Outbox::gather(Gathered& gathered) {
  // The receiver gets descriptors with the first byte of a sendmsg, so that byte must belong to their message.
  const Entry& first = queue_.front();
  std::size_t block = first.next_block;
  for (; block < first.message.blocks.size() && gathered.descriptor_count < kDescriptorsAtOnce; ++block) {
    const int fd = first.message.blocks[block]->fd();
    if (fd >= 0 && first.descriptors > 0) gathered.descriptors[gathered.descriptor_count++] = fd;
  }
  gathered.next_block = block;
  if (gathered.descriptor_count < first.descriptors) {
    // More descriptors follow, and each sendmsg needs a byte. The body has enough: 16 bytes for every block.
    const std::size_t left = first.size(first.segment) - first.offset;
    gathered.add(static_cast<const char*>(first.data(first.segment)) + first.offset, first.untouched() ? left : 1);
    return;
  }
  for (const Entry& entry : queue_) {
    if (&entry != &first && entry.descriptors > 0) return;
    for (std::size_t i = entry.segment; i < entry.segments(); ++i) {
      if (gathered.count == kMaxIovecs) return;
      const std::size_t offset = i == entry.segment ? entry.offset : 0;
      if (entry.size(i) > offset) {
        gathered.add(static_cast<const char*>(entry.data(i)) + offset, entry.size(i) - offset);
      }
    }
  }
}

void Outbox::advance(std::size_t bytes, const Gathered& gathered) {
  unsent_ -= bytes;
  queue_.front().descriptors -= gathered.descriptor_count;
  queue_.front().next_block = gathered.next_block;
  while (!queue_.empty()) {
    Entry& entry = queue_.front();
    while (entry.segment < entry.segments()) {
      const std::size_t here = std::min(bytes, entry.size(entry.segment) - entry.offset);
      bytes -= here;
      entry.offset += here;
      if (entry.offset < entry.size(entry.segment)) return;
      ++entry.segment;
      entry.offset = 0;
    }
    queue_.pop_front();
    if (bytes == 0) return;
  }
}

bool Outbox::flush(int socket) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kDescriptorsAtOnce * sizeof(int))> control;
  while (!queue_.empty()) {
    Gathered gathered;
    gather(gathered);
    msghdr header{};
    header.msg_iov = gathered.pieces.data();
    header.msg_iovlen = gathered.count;
    if (gathered.descriptor_count > 0) {
      const std::size_t size = gathered.descriptor_count * sizeof(int);
      header.msg_control = control.data();
      header.msg_controllen = CMSG_SPACE(size);
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(size);
      std::memcpy(CMSG_DATA(rights), gathered.descriptors.data(), size);
    }
    const ssize_t sent = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      advance(static_cast<std::size_t>(sent), gathered);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
    Entry& first = queue_.front();
    if (errno != ETOOMANYREFS || !first.untouched()) return false;
    // The kernel limits the descriptors of a user that are in sockets unread. Send the message without its descriptors.
    first.header.descriptors = 0;
    first.descriptors = mark_lost(first.message, true);
  }
  return true;
}

}  // namespace service_streamer::ipc
