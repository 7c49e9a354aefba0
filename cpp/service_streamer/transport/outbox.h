#pragma once

#include <cstddef>
#include <deque>

#include "service_streamer/wire/message.h"

namespace service_streamer::ipc {

// Messages on their way into a socket, in order: one sendmsg takes as many as fit, without copying them. Used by one thread.
class Outbox {
 public:
  // The handles of its blocks are in its table already.
  void push(OutMessage message);

  // Never blocks. False: the peer is gone.
  bool flush(int socket);

  std::size_t unsent() const { return unsent_; }  // bytes
  void clear();

 private:
  // How much of it is sent.
  struct Entry {
    FrameHeader header;
    OutMessage message;
    std::size_t segment = 0;  // header, head, tail…
    std::size_t offset = 0;   // in the segment
    std::size_t descriptors = 0;
    std::size_t next_block = 0;

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
