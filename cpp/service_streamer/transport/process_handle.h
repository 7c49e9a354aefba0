#pragma once

#include <sys/types.h>

#include <cstdint>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/transport/poller.h"

namespace service_streamer::ipc {

// A process that a poller watches by its pidfd. The poller reports the death of the process even if a child of it keeps
// its socket open, so that there is no end of file. Without pidfds in the kernel, and for pid 0 (in tests), nothing is
// watched. Used by the IO thread only.
class ProcessHandle {
 public:
  // Throws std::system_error.
  ProcessHandle(Poller& poller, std::uint64_t key, pid_t pid);
  ~ProcessHandle();
  ProcessHandle(const ProcessHandle&) = delete;
  ProcessHandle& operator=(const ProcessHandle&) = delete;

  pid_t pid() const { return pid_; }

  // Sends SIGKILL. With a pidfd the signal cannot reach another process that got the same pid.
  void kill() const;

 private:
  Poller& poller_;
  const pid_t pid_;
  const FileDescriptor pidfd_;
};

}  // namespace service_streamer::ipc
