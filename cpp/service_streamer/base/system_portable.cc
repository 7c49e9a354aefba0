#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <random>
#include <system_error>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/base/system.h"

#ifdef __linux__
#include <sys/syscall.h>
#endif

namespace service_streamer {

// macOS has no pipe2(). So a fork that runs another program meanwhile is delayed.
Event open_event() {
  const ForkLock no_fork;
  std::array<int, 2> ends;
  if (pipe(ends.data()) < 0) throw std::system_error(errno, std::generic_category(), "pipe");
  for (const int fd : ends) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  return {.reader = ends[0], .writer = ends[1]};
}

std::uint32_t thread_id() {
#if defined(__APPLE__)
  std::uint64_t id = 0;
  pthread_threadid_np(nullptr, &id);
  return static_cast<std::uint32_t>(id);
#elif defined(__linux__)
  return static_cast<std::uint32_t>(syscall(SYS_gettid));
#else
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(pthread_self()));
#endif
}

void name_thread([[maybe_unused]] const char* name) {
#if defined(__APPLE__)
  pthread_setname_np(name);
#elif defined(__linux__)
  pthread_setname_np(pthread_self(), name);
#endif
}

void use_exact_timers() {}

bool fill_random(std::uint64_t& number) {
  try {
    std::random_device device;
    number = (static_cast<std::uint64_t>(device()) << 32) | device();
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

}  // namespace service_streamer
