#pragma once

// The only clock of the core: steady, in nanoseconds. Code that decides by time gets its times as arguments, so tests
// and the simulation use invented ones.

#include <chrono>

namespace service_streamer {

using Clock = std::chrono::steady_clock;
using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<Clock, Duration>;

inline double seconds(Duration value) {
  return std::chrono::duration<double>(value).count();
}

}  // namespace service_streamer
