#include "service_streamer/base/file_descriptor.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "service_streamer/base/mutex.h"

namespace service_streamer {
namespace {

// Never freed, because static objects may close descriptors at exit. Clang's analysis cannot follow mutexes
// that one function locks and another unlocks. The plain ones have annotations in new releases of libc++.
struct Registry {
  std::mutex fork_mutex;   // ForkLock; taken before `mutex`
  std::mutex mutex;        // guards `open`; also held during close(), so that a fork never sees a closed entry as open
  std::vector<bool> open;  // by descriptor number
  std::atomic<std::uint32_t> generation{0};
};

Registry& registry();

void before_fork() NO_THREAD_SAFETY_ANALYSIS {
  registry().fork_mutex.lock();
  registry().mutex.lock();
}

void after_fork_in_parent() NO_THREAD_SAFETY_ANALYSIS {
  registry().mutex.unlock();
  registry().fork_mutex.unlock();
}

void after_fork_in_child() {
  Registry& descriptors = registry();
  // Only close(): epoll_ctl() and shutdown() would change what the parent shares.
  for (std::size_t fd = 0; fd < descriptors.open.size(); ++fd) {
    if (descriptors.open[fd]) close(static_cast<int>(fd));
    descriptors.open[fd] = false;
  }
  descriptors.generation.fetch_add(1, std::memory_order_relaxed);
  after_fork_in_parent();
}

Registry& registry() {
  // These handlers run inside fork(), after Python's own before-fork hooks. So no Python code runs while they hold a
  // mutex.
  static Registry& instance = []() -> Registry& {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return *new Registry;
  }();
  return instance;
}

}  // namespace

FileDescriptor::FileDescriptor(int fd) : fd_(fd) {
  if (fd < 0) return;
  Registry& descriptors = registry();
  generation_ = descriptors.generation.load(std::memory_order_relaxed);
  const std::lock_guard lock(descriptors.mutex);
  const auto index = static_cast<std::size_t>(fd);
  try {
    if (index >= descriptors.open.size()) descriptors.open.resize(2 * index + 64);
  } catch (...) {
    close(fd);
    throw;
  }
  descriptors.open[index] = true;
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
  Registry& descriptors = registry();
  if (generation_ != descriptors.generation.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(descriptors.mutex);
  descriptors.open[static_cast<std::size_t>(fd)] = false;
  close(fd);
}

int FileDescriptor::release() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0) return fd;
  Registry& descriptors = registry();
  if (generation_ != descriptors.generation.load(std::memory_order_relaxed)) return -1;
  const std::lock_guard lock(descriptors.mutex);
  descriptors.open[static_cast<std::size_t>(fd)] = false;
  return fd;
}

ForkLock::ForkLock() {
  registry().fork_mutex.lock();
}

ForkLock::~ForkLock() {
  registry().fork_mutex.unlock();
}

std::uint32_t ForkLock::generation() {
  return registry().generation.load(std::memory_order_relaxed);
}

}  // namespace service_streamer
