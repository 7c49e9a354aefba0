#include "service_streamer/ipc/io_thread.h"

#include <pthread.h>
#include <sys/prctl.h>

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
  prctl(PR_SET_TIMERSLACK, 1UL);  // the usual 50 µs are half of the shortest linger
}

}  // namespace service_streamer::ipc
