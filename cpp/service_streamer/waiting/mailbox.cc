#include "service_streamer/waiting/mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace service_streamer {
namespace {

int open_eventfd() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return fd;
}

}  // namespace

Mailbox::Mailbox() : fd_(open_eventfd()) {}

Mailbox::~Mailbox() {
  close(fd_);
}

void Mailbox::post(void* message) {
  bool was_empty;
  {
    MutexLock lock(mutex_);
    was_empty = messages_.empty();
    messages_.push_back(message);
  }
  if (!was_empty) return;
  const std::uint64_t one = 1;
  // The only possible failure is a full counter, and then the descriptor is readable anyway.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
}

std::vector<void*> Mailbox::drain() {
  // Clear the descriptor first. A message that is posted in between then causes an extra wake-up, never a lost one.
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof count);
  MutexLock lock(mutex_);
  return std::exchange(messages_, {});
}

}  // namespace service_streamer
