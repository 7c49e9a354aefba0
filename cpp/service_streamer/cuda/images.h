#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace service_streamer::cuda {

// Images as cameras and decoders give them, and as models want them: from uint8, rows × columns × channels, to numbers of which
// each channel is (value / 255 - mean) / deviation, channels × rows × columns. What goes to the device is a quarter of the bytes.
struct Images {
  static constexpr std::size_t kMostChannels = 4;

  const std::uint8_t* from = nullptr;  // contiguous
  void* to = nullptr;                  // contiguous, float or half
  bool half = false;
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t channels = 0;
  std::array<float, kMostChannels> scale{};  // a value becomes value * scale + shift
  std::array<float, kMostChannels> shift{};
};

// On the CPU; with as many threads as call it.
void normalize_images(const Images& images);

// The same for memory of a device, on a stream (a cudaStream_t) of its; does not wait. Equal to the above but for the last bit, for
// there multiplication and addition are rounded once. Throws std::runtime_error with what CUDA reports.
void normalize_images_on_device(const Images& images, void* stream);

}  // namespace service_streamer::cuda
