#pragma once

#include <vector>

#include "service_streamer/base/mutex.h"

namespace service_streamer {

// Finished requests on their way to an event loop (asyncio, gevent), which watches one eventfd.
//
// post() may be called by any thread and never blocks; the loop's thread drains. The descriptor is written once per
// filling, not once per message: a batch of answers costs the loop one wake-up. What a message is only the two ends know.
class Mailbox {
 public:
  Mailbox();  // throws std::system_error when the process has no descriptor left
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  int fd() const { return fd_; }

  void post(void* message) EXCLUDES(mutex_);

  // Everything posted since the last call, in order; also clears the descriptor.
  std::vector<void*> drain() EXCLUDES(mutex_);

 private:
  const int fd_;

  Mutex mutex_;
  std::vector<void*> messages_ GUARDED_BY(mutex_);
};

}  // namespace service_streamer
