#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace service_streamer::ipc {

// For as long as it lives: no signal is delivered to this thread, nor ever to those that it starts. So a handler of Python's
// never interrupts an IO thread instead of the main thread.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

// Names this thread for ps and debuggers (at most 15 letters), and has its timers end when they should.
void settle_in(const char* name);

// A thread of ours beside Python's. Throws std::system_error.
template <typename Body>
std::thread start_io_thread(const char* name, Body body) {
  const BlockedSignals blocked;
  return std::thread([name, body = std::move(body)]() mutable {
    settle_in(name);
    body();
  });
}

}  // namespace service_streamer::ipc
