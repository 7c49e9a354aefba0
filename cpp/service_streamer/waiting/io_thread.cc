#include "service_streamer/waiting/io_thread.h"

#include <pthread.h>

#include "service_streamer/waiting/parker.h"

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
  pthread_setname_np(pthread_self(), name);
  use_exact_timers();
}

}  // namespace service_streamer::ipc
