#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace service_streamer::cuda {

// The arguments of image normalization. The input is uint8, rows × columns × channels, as decoders give it. The output
// is float or half, channels × rows × columns, with (value / 255 - mean) / deviation. On a device, only the small input
// is copied there.
struct Images {
  static constexpr std::size_t kMaxChannels = 4;

  const std::uint8_t* from = nullptr;  // contiguous
  void* to = nullptr;                  // contiguous, float or half
  bool half = false;
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t channels = 0;
  std::array<float, kMaxChannels> scale{};  // of each channel: the output is value * scale + shift
  std::array<float, kMaxChannels> shift{};
};

// On the CPU, in the calling thread.
void normalize_images(const Images& images);

// The same in device memory, on a stream (a cudaStream_t). Does not wait for it. The results may differ from the CPU in
// the last bit, because the kernel rounds once for multiplication and addition. Throws std::runtime_error with the
// message of CUDA.
void normalize_images_on_device(const Images& images, void* stream);

}  // namespace service_streamer::cuda
