#pragma once

// Random numbers that are the same on every platform, unlike the distributions of <random>.

#include <cmath>
#include <cstdint>

#include "service_streamer/base/clock.h"

namespace service_streamer::simulation {

// splitmix64. It has one word of state, so each simulated client can have its own stream.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) { next(); }

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  int between(int low, int high) { return low + static_cast<int>(uniform() * static_cast<double>(high - low + 1)); }

  Duration exponential(Duration mean) {
    const double drawn = -std::log1p(-uniform()) * static_cast<double>(mean.count());
    return Duration(static_cast<Duration::rep>(drawn));
  }

 private:
  std::uint64_t state_;
};

}  // namespace service_streamer::simulation
