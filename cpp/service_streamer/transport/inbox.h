#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {

enum class Received { kMessage, kNothing, kClosed, kCorrupt };

// Reads messages from a socket. Checks each header, and that exactly as many descriptors come as the header says. If
// there is no memory for the body of a message, the message comes without it. Used by one thread.
class Inbox {
 public:
  // Never blocks. See Connection::receive().
  Received receive(int socket, InMessage& message);

  // Closes all descriptors and frees the memory.
  void clear();

 private:
  // The descriptors that one recvmsg brought.
  struct DescriptorGroup {
    std::vector<FileDescriptor> descriptors;
    bool truncated = false;  // some were lost, because this process has too many open
  };
  enum class Read { kFull, kShort, kNothing, kClosed, kError };

  bool next(InMessage& message, bool& corrupt);
  void allocate_body(std::size_t size);
  bool take_descriptors(std::vector<FileDescriptor>& descriptors);
  bool has_all_descriptors() const;
  bool has_extra_descriptors() const;
  Read read(int socket);
  ssize_t read_with_descriptors(int socket, std::byte* data, std::size_t size);

  std::unique_ptr<std::byte[]> buffer_;  // for headers and small messages
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool drained_ = false;  // the last read emptied the socket

  // The message that is being received.
  bool has_header_ = false;
  FrameHeader header_{};
  Bytes body_;  // grows while the body comes in
  std::byte* data_ = nullptr;
  std::size_t filled_ = 0;
  bool no_memory_ = false;  // the body is read and dropped

  std::deque<DescriptorGroup> groups_;
  std::size_t descriptor_count_ = 0;  // in all groups
};

}  // namespace service_streamer::ipc
