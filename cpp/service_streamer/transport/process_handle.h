#pragma once

#include <sys/types.h>

#include <cstdint>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/transport/poller.h"

namespace service_streamer::ipc {

// A process in a poller, which tells of its death: also where a child of that process holds on to its socket, so that nobody
// sees the end of file. It does nothing where the kernel cannot, or for process 0 (of tests).
class ProcessHandle {
 public:
  // Throws std::system_error.
  ProcessHandle(Poller& poller, std::uint64_t key, pid_t pid);
  ~ProcessHandle();
  ProcessHandle(const ProcessHandle&) = delete;
  ProcessHandle& operator=(const ProcessHandle&) = delete;

  pid_t pid() const { return pid_; }

  // SIGKILL, and never to another process that got its number.
  void kill() const;

 private:
  Poller& poller_;
  const pid_t pid_;
  const FileDescriptor pidfd_;
};

}  // namespace service_streamer::ipc
