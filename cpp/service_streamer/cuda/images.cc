#include "service_streamer/cuda/images.h"

#include <bit>
#include <cstring>

namespace service_streamer::cuda {
namespace {

// Rounds to nearest, ties to even, like the device. Values that are too large become infinity.
std::uint16_t half_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7FFFU);   // not a number
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // rounds to infinity
  if (magnitude < 0x38800000U) {  // subnormal half: the addition of 0.5 rounds
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1U;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000U + 0xFFFU + odd) >> 13));
}

template <typename Element, typename Store>
void normalize(const Images& images, Store store) {
  const std::int64_t plane = images.rows * images.columns;
  auto* to = static_cast<Element*>(images.to);
  for (std::int64_t image = 0; image < images.count; ++image) {
    const std::uint8_t* from = images.from + image * plane * images.channels;
    for (std::int64_t channel = 0; channel < images.channels; ++channel) {
      const float scale = images.scale[static_cast<std::size_t>(channel)];
      const float shift = images.shift[static_cast<std::size_t>(channel)];
      for (std::int64_t i = 0; i < plane; ++i) {
        *to++ = store(static_cast<float>(from[i * images.channels + channel]) * scale + shift);
      }
    }
  }
}

}  // namespace

void normalize_images(const Images& images) {
  if (images.half) {
    normalize<std::uint16_t>(images, half_of);
  } else {
    normalize<float>(images, [](float value) { return value; });
  }
}

}  // namespace service_streamer::cuda
