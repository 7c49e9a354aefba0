#include <cuda_fp16.h>

#include "service_streamer/cuda/images.h"
#include "service_streamer/cuda/launch.cuh"

namespace service_streamer::cuda {
namespace {

struct Factors {
  float scale[Images::kMostChannels];
  float shift[Images::kMostChannels];
};

// A thread for each pixel: it reads its channels, which lie side by side, and writes one number to each plane.
template <typename Number>
__global__ void normalize(const std::uint8_t* __restrict__ from, Number* __restrict__ to, std::int64_t pixels,
                          std::int64_t plane, int channels, Factors factors) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t pixel = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; pixel < pixels;
       pixel += step) {
    Number* const image = to + pixel / plane * plane * channels + pixel % plane;
    for (int channel = 0; channel < channels; ++channel) {
      const auto value = static_cast<float>(from[pixel * channels + channel]);
      image[channel * plane] = static_cast<Number>(fmaf(value, factors.scale[channel], factors.shift[channel]));
    }
  }
}

}  // namespace

void normalize_images_on_device(const Images& images, void* stream) {
  const std::int64_t plane = images.rows * images.columns;
  const std::int64_t pixels = images.count * plane;
  if (pixels * images.channels == 0) return;
  Factors factors{};
  for (std::size_t i = 0; i < Images::kMostChannels; ++i) {
    factors.scale[i] = images.scale[i];
    factors.shift[i] = images.shift[i];
  }
  auto* const on = static_cast<cudaStream_t>(stream);
  const int channels = static_cast<int>(images.channels);
  if (images.half) {
    normalize<<<blocks_for(pixels), kThreads, 0, on>>>(images.from, static_cast<__half*>(images.to), pixels, plane,
                                                       channels, factors);
  } else {
    normalize<<<blocks_for(pixels), kThreads, 0, on>>>(images.from, static_cast<float*>(images.to), pixels, plane,
                                                       channels, factors);
  }
  check_launch("normalize_images");
}

}  // namespace service_streamer::cuda
