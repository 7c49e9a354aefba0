#include "service_streamer/base/file_descriptor.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace service_streamer {
namespace {

// Never freed: descriptors may be closed while the process' statics go. Plain mutexes, for the clang analysis cannot follow
// one that is taken by one function and let go of by another.
struct Registry {
  std::mutex in_transit;  // taken before `mutex`
  std::mutex mutex;       // for `open`, and while one is closed: a fork sees it open and known, or neither
  std::vector<bool> open;
  std::atomic<std::uint32_t> generation{0};
};

Registry& registry();

void before_fork() {
  registry().in_transit.lock();
  registry().mutex.lock();
}

void after_fork_in_parent() {
  registry().mutex.unlock();
  registry().in_transit.unlock();
}

void after_fork_in_child() {
  Registry& known = registry();
  for (std::size_t fd = 0; fd < known.open.size(); ++fd) {
    if (known.open[fd]) close(static_cast<int>(fd));
    known.open[fd] = false;
  }
  known.generation.fetch_add(1, std::memory_order_relaxed);
  after_fork_in_parent();
}

Registry& registry() {
  // Hooks of pthread_atfork run inside fork(), after all that Python runs before it: what they hold, nobody's code sees held.
  static Registry& instance = []() -> Registry& {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return *new Registry;
  }();
  return instance;
}

}  // namespace

FileDescriptor::FileDescriptor(int fd) : fd_(fd) {
  if (fd < 0) return;
  Registry& known = registry();
  generation_ = known.generation.load(std::memory_order_relaxed);
  const std::lock_guard lock(known.mutex);
  const auto index = static_cast<std::size_t>(fd);
  try {
    if (index >= known.open.size()) known.open.resize(2 * index + 64);
  } catch (...) {
    close(fd);
    throw;
  }
  known.open[index] = true;
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    generation_ = other.generation_;
  }
  return *this;
}

void FileDescriptor::reset() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0) return;
  Registry& known = registry();
  if (generation_ != known.generation.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(known.mutex);
  known.open[static_cast<std::size_t>(fd)] = false;
  close(fd);
}

int FileDescriptor::release() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0) return fd;
  Registry& known = registry();
  if (generation_ != known.generation.load(std::memory_order_relaxed)) return -1;
  const std::lock_guard lock(known.mutex);
  known.open[static_cast<std::size_t>(fd)] = false;
  return fd;
}

ForkLock::ForkLock() {
  registry().in_transit.lock();
}

ForkLock::~ForkLock() {
  registry().in_transit.unlock();
}

std::uint32_t ForkLock::generation() {
  return registry().generation.load(std::memory_order_relaxed);
}

}  // namespace service_streamer
