#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "service_streamer/base/system.h"

namespace service_streamer {

Event open_event() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return {.reader = fd, .writer = fd};
}

std::uint32_t thread_id() {
  return static_cast<std::uint32_t>(syscall(SYS_gettid));
}

void name_thread(const char* name) {
  pthread_setname_np(pthread_self(), name);
}

void use_exact_timers() {
  prctl(PR_SET_TIMERSLACK, 1UL);
}

bool fill_random(std::uint64_t& number) {
  return getrandom(&number, sizeof number, GRND_NONBLOCK) == sizeof number;
}

}  // namespace service_streamer
