#include "service_streamer/transport/address.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "service_streamer/base/clock.h"

namespace service_streamer::ipc {
namespace {

constexpr Duration kLockTimeout = std::chrono::seconds(2);
constexpr Duration kLockRetryInterval = std::chrono::milliseconds(10);

[[noreturn]] void fail(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

struct Name {
  explicit Name(const std::string& address) {
    const bool is_abstract = address.starts_with('@');
    if (address.empty() || address == "@")
      throw std::invalid_argument("address must not be empty, got '" + address + "'");
    if (address.size() >= sizeof in.sun_path || address.find('\0') != std::string::npos) {
      throw std::invalid_argument("address must be of at most " + std::to_string(sizeof in.sun_path - 1) +
                                  " bytes and without null bytes, got '" + address + "'");
    }
    in.sun_family = AF_UNIX;
    std::memcpy(in.sun_path, address.data(), address.size());
    if (is_abstract) in.sun_path[0] = '\0';
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size() + (is_abstract ? 0 : 1));
  }

  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&in); }
  bool is_path() const { return in.sun_path[0] != '\0'; }

  sockaddr_un in{};
  socklen_t size = 0;
};

FileDescriptor new_socket() {
  const ForkLock no_fork;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) fail(errno, "socket");
  return FileDescriptor(fd);
}

bool same_user(const FileDescriptor& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// Locks the folder of a path, so that only one process at a time checks for a dead socket and replaces it. Waits with a
// timeout, because any process may lock a folder and keep the lock.
FileDescriptor lock_folder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  FileDescriptor fd;
  {
    const ForkLock no_fork;
    fd = FileDescriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  if (!fd) fail(errno, folder);
  const TimePoint deadline = Clock::now() + kLockTimeout;
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK || Clock::now() >= deadline) fail(errno, "cannot lock (flock) the folder " + folder);
    std::this_thread::sleep_for(kLockRetryInterval);
  }
  return fd;
}

// Returns whether the path is a socket without a listener. Any other file must not be removed.
bool is_dead(const std::string& path, const Name& name) {
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  const FileDescriptor probe = new_socket();
  return connect(probe.get(), name.address(), name.size) != 0 && errno == ECONNREFUSED;
}

// A descriptor that is kept open for use when no other is left (EMFILE). It is closed to accept a connection, which is
// then closed at once. Otherwise the connection would stay in the queue and wake the listening thread again and again.
class ReserveDescriptor {
 public:
  static ReserveDescriptor& instance() {
    static ReserveDescriptor& reserve = *new ReserveDescriptor;
    return reserve;
  }

  void open_reserve() {
    const ForkLock no_fork;
    reopen();
  }

  void reject(int listener) {
    const ForkLock no_fork;
    fd_.reset();
    {
      const FileDescriptor rejected(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    }
    reopen();
  }

 private:
  void reopen() {
    if (generation_ != ForkLock::generation()) fd_.reset();  // it was the parent's
    generation_ = ForkLock::generation();
    if (!fd_) fd_ = FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }

  // Guarded by ForkLock.
  FileDescriptor fd_;
  std::uint32_t generation_ = 0;
};

}  // namespace

FileDescriptor listen_on(const std::string& address) {
  const Name name(address);
  FileDescriptor socket = new_socket();
  FileDescriptor lock;  // until the end: before listen() another process would take the socket for a dead one
  if (name.is_path()) {
    lock = lock_folder(address);
    fchmod(socket.get(), 0600);  // bind() makes the file with this mode
    if (is_dead(address, name)) unlink(address.c_str());
  }
  if (bind(socket.get(), name.address(), name.size) != 0) fail(errno, address);
  if (listen(socket.get(), SOMAXCONN) != 0) fail(errno, address);
  ReserveDescriptor::instance().open_reserve();
  return socket;
}

FileDescriptor connect_to(const std::string& address) {
  const Name name(address);
  FileDescriptor socket = new_socket();
  if (connect(socket.get(), name.address(), name.size) != 0) fail(errno, address);
  if (!same_user(socket)) fail(EACCES, address + " belongs to another user");
  return socket;
}

FileDescriptor accept_from(const FileDescriptor& listener) {
  FileDescriptor socket;
  int error = 0;
  {
    const ForkLock no_fork;
    socket = FileDescriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) error = errno;
  }
  if (error == EMFILE || error == ENFILE) ReserveDescriptor::instance().reject(listener.get());
  if (socket && !same_user(socket)) socket.reset();
  return socket;
}

}  // namespace service_streamer::ipc
