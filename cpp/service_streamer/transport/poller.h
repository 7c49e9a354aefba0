#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/waiting/waiter.h"

namespace service_streamer::ipc {

// The epoll of an IO thread. The thread sleeps on descriptors and on a waiter, which the engine and other threads wake.
// One thread uses a poller. Any thread may wake the parker of waiter(), also after the poller is closed or destroyed.
class Poller {
 public:
  Poller();  // throws std::system_error when no descriptor is left
  ~Poller() { close(); }
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  Waiter& waiter() const { return waiter_; }

  // Gives back the descriptors. The thread must not sleep any more. Idempotent.
  void close();

  // Descriptors have keys, not pointers, because an event may be stale. Always call forget() before close(): a forked
  // child may have a duplicate, and epoll would go on reporting it. watch() and change() throw std::system_error.
  void watch(int fd, std::uint64_t key, std::uint32_t events);
  void change(int fd, std::uint64_t key, std::uint32_t events);
  void forget(int fd);

  struct Event {
    std::uint64_t key;
    std::uint32_t events;
  };
  // Blocks until a descriptor is ready, the waiter is woken, or `until`. `woken`: the waiter was woken, so the caller
  // must check again what other threads change. The events are valid until the next call.
  std::span<const Event> sleep(TimePoint until, bool& woken);

  // Returns whether the waiter was woken since the last sleep, and clears that. Saves a sleep that would end at once.
  bool take_wake() { return waiter_.parker.end_sleep(); }

 private:
  FileDescriptor epoll_;
  int event_ = -1;
  Waiter& waiter_;
  std::vector<Event> ready_;
};

}  // namespace service_streamer::ipc
