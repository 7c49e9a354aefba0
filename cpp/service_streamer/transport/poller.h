#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "service_streamer/base/clock.h"
#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/waiting/waiter.h"

namespace service_streamer::ipc {

// What an IO thread sleeps on: descriptors, and its waiter, which other threads and the engine wake. Used by that one thread,
// or by who does its work while it sleeps (`Server`), but for waiter(), whose parker anybody may wake, also after the poller is gone.
class Poller {
 public:
  Poller();  // throws std::system_error when no descriptor is left
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  Waiter& waiter() const { return waiter_; }

  // Descriptors are known by keys, never by pointers: an event may be old. forget() comes before close(), always: a forked
  // child may have a duplicate, and epoll would go on telling of it. Throw std::system_error.
  void watch(int fd, std::uint64_t key, std::uint32_t events);
  void change(int fd, std::uint64_t key, std::uint32_t events);
  void forget(int fd);

  struct Event {
    std::uint64_t key;
    std::uint32_t events;
  };
  // Blocks until a descriptor has something to tell, the waiter was woken (`woken`: whatever others changed must be looked at
  // again), or `until`. The events are valid until the next call.
  std::span<const Event> sleep(TimePoint until, bool& woken);

  // Whether the waiter was woken since; spares a sleep that would end at once.
  bool take_wake() { return waiter_.parker.end_sleep(); }

 private:
  const FileDescriptor epoll_;
  int event_ = -1;
  Waiter& waiter_;
  std::vector<Event> ready_;
};

}  // namespace service_streamer::ipc
