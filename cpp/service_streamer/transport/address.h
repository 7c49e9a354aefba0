#pragma once

#include <string>

#include "service_streamer/base/file_descriptor.h"

namespace service_streamer::ipc {

// An address is a path, or "@name" for an abstract name of Linux, which is not in the file system. The functions throw
// std::system_error, and std::invalid_argument if the address is empty or too long. Both sides refuse peers of other
// users. Any thread may call them.

// Returns a listening socket. The socket file gets mode 0600, and the caller unlinks it at the end. The file of a dead
// process is replaced; if a living process listens there, the error is EADDRINUSE. May block for two seconds if another
// process has locked the folder.
FileDescriptor listen_on(const std::string& address);

// Returns a connected socket. Never blocks; the error is EAGAIN if the queue of the listener is full.
FileDescriptor connect_to(const std::string& address);

// Accepts the next connection. Returns an empty descriptor if there is none, or if it was closed: it came from another
// user's process, or no descriptor was left. Never blocks.
FileDescriptor accept_from(const FileDescriptor& listener);

}  // namespace service_streamer::ipc
