#include "service_streamer/transport/process_handle.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>

// The headers of manylinux_2_28 are older than these calls. The numbers are equal on all architectures.
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace service_streamer::ipc {
namespace {

FileDescriptor open_pidfd(pid_t pid) {
  if (pid <= 0) return {};
  const ForkLock lock;
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

ProcessHandle::ProcessHandle(Poller& poller, std::uint64_t key, pid_t pid)
    : poller_(poller), pid_(pid), pidfd_(open_pidfd(pid)) {
  if (pidfd_) poller_.watch(pidfd_.get(), key, EPOLLIN);
}

ProcessHandle::~ProcessHandle() {
  if (pidfd_) poller_.forget(pidfd_.get());
}

void ProcessHandle::kill() const {
  if (pidfd_) {
    syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  } else if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
  }
}

}  // namespace service_streamer::ipc
