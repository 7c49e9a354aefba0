#pragma once

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "service_streamer/base/file_descriptor.h"

namespace service_streamer::ipc {

// Returns a pair of connected sockets. Throws std::system_error.
inline std::pair<FileDescriptor, FileDescriptor> socket_pair() {
  std::array<int, 2> fds{};
  const ForkLock no_fork;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  FileDescriptor first(fds[0]);
  return {std::move(first), FileDescriptor(fds[1])};
}

}  // namespace service_streamer::ipc
