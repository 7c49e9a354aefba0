#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

// Half precision by its definition: the nearest of its numbers, of two the even one.
class __half {  // NOLINT(bugprone-reserved-identifier)
 public:
  explicit __half(float value) {
    const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
    const double magnitude = std::abs(static_cast<double>(value));
    if (std::isnan(value)) {
      bits_ = 0x7FFF;
    } else if (magnitude >= 65520) {  // half-way between the largest and what would come next
      bits_ = sign | 0x7C00;
    } else {
      const int exponent = magnitude == 0 ? -14 : std::max(std::ilogb(magnitude), -14);
      const auto units =
          static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));  // 1024 and more: normal
      bits_ = static_cast<std::uint16_t>(sign + ((exponent + 14) << 10) + units);
    }
  }

 private:
  std::uint16_t bits_;
};
