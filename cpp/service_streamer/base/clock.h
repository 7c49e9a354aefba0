#pragma once

// The one clock of the core: steady, counted in nanoseconds. Everything that decides by time gets
// its times as arguments, so that tests and the simulation run on invented ones.

#include <chrono>

namespace service_streamer {

using Clock = std::chrono::steady_clock;
using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<Clock, Duration>;

}  // namespace service_streamer
