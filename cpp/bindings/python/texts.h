#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>

namespace service_streamer::bindings {

// A short part of a message. It has no destructor, so that it may be on the stack of a thread that waits for the GIL.
struct Text {
  char text[32];
};

// "1 item" or "2 items"; `which` is put between the two.
inline Text items_text(std::size_t items, const char* which = "") {
  Text made;
  std::snprintf(made.text, sizeof made.text, "%zu %sitem%s", items, which, items == 1 ? "" : "s");
  return made;
}

// "20 s" or "1.5 ms", with three digits as in _statistics/formats.py.
inline Text duration_text(std::chrono::duration<double> duration) {
  const double seconds = duration.count();
  Text made;
  std::snprintf(made.text, sizeof made.text, seconds < 1 ? "%.3g ms" : "%.3g s", seconds < 1 ? 1e3 * seconds : seconds);
  return made;
}

}  // namespace service_streamer::bindings
