// Normalizing images on the CPU, compared with a simple reference implementation.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "service_streamer/cuda/images.h"

namespace service_streamer::support {
namespace {

using cuda::Images;

// Converts by the definition of the format.
double value_of_half(std::uint16_t half) {
  const double sign = (half & 0x8000U) != 0 ? -1 : 1;
  const int exponent = (half >> 10) & 0x1F;
  const int mantissa = half & 0x3FF;
  if (exponent == 0x1F) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

Images images_of(const std::vector<std::uint8_t>& from, std::int64_t count, std::int64_t rows, std::int64_t columns,
                 std::int64_t channels) {
  Images images{.from = from.data(), .count = count, .rows = rows, .columns = columns, .channels = channels};
  images.scale = {1.0F / 57, 1.0F / 58, 1.0F / 59, 1.0F / 60};
  images.shift = {-2.1F, -2.0F, -1.8F, -1.5F};
  return images;
}

std::vector<std::uint8_t> random_bytes(std::size_t count) {
  std::mt19937 random(1);
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

TEST(CudaImages, AreTransposedAndNormalizedOnTheCpu) {
  for (const std::int64_t channels : {1, 3, 4}) {
    const std::vector<std::uint8_t> from = random_bytes(static_cast<std::size_t>(2 * 5 * 7 * channels));
    Images images = images_of(from, 2, 5, 7, channels);
    std::vector<float> to(from.size());
    images.to = to.data();
    cuda::normalize_images(images);
    for (std::size_t image = 0; image < 2; ++image) {
      for (std::size_t pixel = 0; pixel < 35; ++pixel) {
        for (std::size_t channel = 0; channel < static_cast<std::size_t>(channels); ++channel) {
          const auto all = static_cast<std::size_t>(channels);
          const double value = from[(image * 35 + pixel) * all + channel];
          EXPECT_NEAR(to[(image * all + channel) * 35 + pixel],
                      value * images.scale.at(channel) + images.shift.at(channel), 1e-6);
        }
      }
    }
  }
}

TEST(CudaImages, AreRoundedToTheNearestHalf) {
  // From values that underflow to values that overflow.
  std::vector<std::uint8_t> from(256);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i);
  for (const float scale : {3e-10F, 1e-8F, 3e-7F, 1e-5F, 0.013F, 1.7F, -1.7F, 300.0F, 1e30F}) {
    Images images = images_of(from, 1, 1, 256, 1);
    images.scale[0] = scale;
    images.shift[0] = 0;
    std::vector<std::uint16_t> to(from.size());
    images.to = to.data();
    images.half = true;
    cuda::normalize_images(images);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const double wanted = static_cast<double>(from[i]) * scale;
      const double found = value_of_half(to[i]);
      if (std::abs(wanted) >= 65520) {
        EXPECT_EQ(found, std::copysign(INFINITY, wanted));
        continue;
      }
      // Half of the distance to the next half, plus the rounding error of the float.
      const double unit = std::ldexp(1, std::max(-24, std::ilogb(wanted == 0 ? 1e-9 : wanted) - 10));
      EXPECT_LE(std::abs(found - wanted), unit / 2 * (1 + 1e-3)) << from[i] << " * " << scale;
    }
  }
}

TEST(CudaImages, AnEmptyBatchIsEmpty) {
  cuda::normalize_images(images_of({}, 0, 5, 7, 3));
}

}  // namespace
}  // namespace service_streamer::support
