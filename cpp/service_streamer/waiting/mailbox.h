#pragma once

#include <vector>

#include "service_streamer/base/mutex.h"

namespace service_streamer {

// Carries finished requests to an event loop (asyncio, gevent), which watches fd(), an eventfd.
//
// Any thread may post; the thread of the loop drains. Neither call blocks. Only the first message after a drain
// writes to the eventfd, so a batch of results wakes the loop once. A message is an opaque pointer; the Mailbox never
// dereferences it.
class Mailbox {
 public:
  Mailbox();  // throws std::system_error if the process has no file descriptor left
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  int fd() const { return fd_; }

  void post(void* message) EXCLUDES(mutex_);

  // Returns everything posted since the last call, in order. Afterwards fd() is not readable until the next post().
  std::vector<void*> drain() EXCLUDES(mutex_);

 private:
  const int fd_;

  Mutex mutex_;
  std::vector<void*> messages_ GUARDED_BY(mutex_);
};

}  // namespace service_streamer
