#pragma once

#include <cstddef>
#include <deque>

#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {

// Writes messages to a socket in order. One sendmsg takes as many messages as fit, without copying them. Used by one
// thread.
class Outbox {
 public:
  // The table of the message must contain the handles of its blocks.
  void push(OutMessage message);

  // Writes what the socket takes; never blocks. False: the peer has hung up.
  bool flush(int socket);

  std::size_t unsent() const { return unsent_; }  // bytes
  void clear();

 private:
  // A message, and how much of it has been sent.
  struct Entry {
    FrameHeader header;
    OutMessage message;
    std::size_t segment = 0;      // the next to send: 0 header, 1 head, 2... tail
    std::size_t offset = 0;       // in that segment
    std::size_t descriptors = 0;  // not sent yet
    std::size_t next_block = 0;   // the first block whose descriptor is not sent yet

    bool untouched() const { return segment == 0 && offset == 0; }
    std::size_t segments() const { return 2 + message.tail.size(); }
    const void* data(std::size_t segment) const;
    std::size_t size(std::size_t segment) const;
  };
  struct Gathered;

  void gather(Gathered& gathered);
  void advance(std::size_t bytes, const Gathered& gathered);

  std::deque<Entry> queue_;
  std::size_t unsent_ = 0;
};

}  // namespace service_streamer::ipc
