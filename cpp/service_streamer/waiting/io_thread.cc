#include "service_streamer/waiting/io_thread.h"

#include <pthread.h>

#include "service_streamer/base/system.h"

namespace service_streamer::ipc {

BlockedSignals::BlockedSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &previous_);
}

BlockedSignals::~BlockedSignals() {
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

void init_io_thread(const char* name) {
  name_thread(name);
  use_exact_timers();
}

}  // namespace service_streamer::ipc
