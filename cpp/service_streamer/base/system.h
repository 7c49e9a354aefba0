#pragma once

#include <cstdint>

namespace service_streamer {

// What each system does in its own way. system_linux.cc, or system_portable.cc with SERVICE_STREAMER_PORTABLE.

// A descriptor that any thread can make readable: an eventfd, which is both ends, or a pipe. exec closes both ends, and
// neither blocks.
struct Event {
  int reader = -1;  // for poll, epoll and event loops
  int writer = -1;

  void set() const;    // makes it readable
  void clear() const;  // makes it unreadable again; what threads set meanwhile may be left
  void close() const;
};

// Throws std::system_error.
Event open_event();

// The number of the calling thread, as Python's threading.get_native_id().
std::uint32_t thread_id();

// The name of the calling thread, as ps and debuggers show it; at most 15 characters.
void name_thread(const char* name);

// From now on timed sleeps of this thread end at their deadline. By default Linux may end them later, to join wake-ups.
void use_exact_timers();

// False: the system has no random number yet. It does not block.
bool fill_random(std::uint64_t& number);

}  // namespace service_streamer
