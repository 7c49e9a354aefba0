#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace service_streamer::ipc {

// Blocks all signals in the current thread while it exists. Threads that are started meanwhile keep signals blocked
// for ever. So a signal always reaches a thread of the application, where Python handles it, and never an IO thread.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t previous_;
};

// Called at the start of an IO thread. Sets its name, as ps and debuggers show it (at most 15 characters), and exact
// timers.
void init_io_thread(const char* name);

// Starts a thread that runs `body` with all signals blocked and never takes the GIL. Throws std::system_error if the
// system cannot start another thread.
template <typename Body>
std::thread start_io_thread(const char* name, Body body) {
  const BlockedSignals blocked;
  return std::thread([name, body = std::move(body)]() mutable {
    init_io_thread(name);
    body();
  });
}

}  // namespace service_streamer::ipc
