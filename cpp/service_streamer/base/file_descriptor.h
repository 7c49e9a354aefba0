#pragma once

#include <cstdint>

namespace service_streamer {

// Owns a file descriptor that no forked child may keep open. Examples: a socket whose end of file tells the peer that
// this process has died, a memfd whose memory is freed with its last descriptor.
//
// A forked child closes all of these descriptors at once, in a pthread_atfork handler, because close-on-exec does not
// apply to fork. There, a FileDescriptor of the parent no longer owns anything: reset() and the destructor do
// nothing.
//
// Different objects may be used by different threads. The constructor throws std::bad_alloc and then has closed `fd`.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd);  // takes ownership of fd; -1 means none
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();   // closes the descriptor, unless this is a forked child and the parent opened it
  int release();  // gives up ownership without closing; -1 in a forked child; later children keep the descriptor

 private:
  int fd_ = -1;
  std::uint32_t generation_ = 0;
};

// Delays fork() in other threads while it is held. Hold it while a descriptor is open but not yet in a FileDescriptor
// (as around recvmsg), or while a mutex is locked that a forked child needs too.
//
// Any thread. Must not be nested. Code that holds it must not block.
class ForkLock {
 public:
  ForkLock();
  ~ForkLock();
  ForkLock(const ForkLock&) = delete;
  ForkLock& operator=(const ForkLock&) = delete;

  // The number of forks between the first process that used a FileDescriptor and this process. An object that was
  // made under another number belongs to the parent: only its memory may be touched.
  static std::uint32_t generation();
};

}  // namespace service_streamer
