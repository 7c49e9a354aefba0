#pragma once

#include <string>
#include <utility>

#include "service_streamer/base/file_descriptor.h"

namespace service_streamer::ipc {

// A pair of connected sockets, for a worker; throws std::system_error.
std::pair<FileDescriptor, FileDescriptor> socket_pair();

// Addresses: a path, or "@name" for Linux's abstract names, which leave nothing in the file system. All throw std::system_error /
// std::invalid_argument (too long, empty). Peers are processes of the same user; others are refused on either side.
// A path gets mode 0600; one that a dead process left is replaced, one that a living process listens on is EADDRINUSE. Whoever
// listens unlinks it in the end.
FileDescriptor listen_on(const std::string& address);
FileDescriptor connect_to(const std::string& address);  // never blocks; EAGAIN: too many are about to connect

// The next one that connects; none: nobody is there, or it was refused: another user's process, or no descriptor was left for
// it (it sees the end of file).
FileDescriptor accept_from(const FileDescriptor& listener);

}  // namespace service_streamer::ipc
