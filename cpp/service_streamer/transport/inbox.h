#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {

enum class Received { kMessage, kNothing, kClosed, kCorrupt };

// Makes messages of what comes out of a socket. Checks the headers, and that each message has as many descriptors as it says,
// neither fewer nor more. One for whose body there is no memory comes without it. Used by one thread.
class Inbox {
 public:
  // Never blocks; see Connection::receive().
  Received receive(int socket, InMessage& message);

  // Closes and frees everything.
  void clear();

 private:
  // The descriptors of one recvmsg.
  struct Chunk {
    std::vector<FileDescriptor> descriptors;
    bool truncated = false;  // some were lost: this process has too many open
  };
  enum class Read { kFull, kShort, kNothing, kClosed, kError };

  bool next(InMessage& message, bool& corrupt);
  void make_room(std::size_t size);
  bool take_descriptors(std::vector<FileDescriptor>& descriptors);
  bool has_all_descriptors() const;
  bool surplus() const;
  Read read(int socket);
  ssize_t read_with_descriptors(int socket, std::byte* data, std::size_t size);

  std::unique_ptr<std::byte[]> buffer_;  // for headers and small messages
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool drained_ = false;  // the last read got all there was

  // The message that is being received.
  bool has_header_ = false;
  FrameHeader header_{};
  Bytes body_;  // its memory, which grows with what comes
  std::byte* data_ = nullptr;
  std::size_t filled_ = 0;
  bool unread_ = false;  // there is no memory for it: what comes is dropped

  std::deque<Chunk> chunks_;
  std::size_t descriptors_ = 0;  // in all of them
};

}  // namespace service_streamer::ipc
