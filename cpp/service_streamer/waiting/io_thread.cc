#include "service_streamer/waiting/io_thread.h"

#include <pthread.h>

#include "service_streamer/waiting/parker.h"

namespace service_streamer::ipc {

BlockedSignals::BlockedSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before_);
}

BlockedSignals::~BlockedSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void settle_in(const char* name) {
  pthread_setname_np(pthread_self(), name);
  wake_in_time();
}

}  // namespace service_streamer::ipc
