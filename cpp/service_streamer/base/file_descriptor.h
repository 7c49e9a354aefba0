#pragma once

#include <cstdint>

namespace service_streamer {

// Owns a descriptor of this process that no other process may keep: a socket whose end of file tells of our death, a memfd
// that is to go with its last user. Close-on-exec does nothing at fork; so the child of a fork closes all of them at once, by
// pthread_atfork (only close(): epoll_ctl and shutdown would act on the parent's). What owned them there is to be leaked,
// and does nothing to the child's descriptors if it is not.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd);  // takes it over; -1: none
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();   // closes; in a forked child, where the parent's are closed already, nothing
  int release();  // gives it up, still open; forked children keep it

 private:
  int fd_ = -1;
  std::uint32_t generation_ = 0;
};

// Held while a descriptor is open but not yet in a FileDescriptor (around recvmsg), so that no fork comes between. Nobody has
// to call anything at fork. Not to be nested, and never held while anything blocks.
class ForkLock {
 public:
  ForkLock();
  ~ForkLock();
  ForkLock(const ForkLock&) = delete;
  ForkLock& operator=(const ForkLock&) = delete;

  // How many forks lie between this process and the one that first used a FileDescriptor: what was made under another number
  // is the parent's, and only its memory may be touched.
  static std::uint32_t generation();
};

}  // namespace service_streamer
