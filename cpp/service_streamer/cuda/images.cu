#include <cuda_fp16.h>

#include <type_traits>

#include "service_streamer/cuda/images.h"
#include "service_streamer/cuda/launch.cuh"

namespace service_streamer::cuda {
namespace {

struct Factors {
  float scale[Images::kMaxChannels];
  float shift[Images::kMaxChannels];
};

// In terms of launch(): a row is an image, and its elements are pixels. The channels of a pixel go to one plane each.
template <typename Element>
__global__ void normalize(const std::uint8_t* __restrict__ from, Element* __restrict__ to, std::int64_t images,
                          std::int64_t pixels, int channels, const SERVICE_STREAMER_GRID_CONSTANT Factors factors) {
  const Stride over = along_rows();
  for (std::int64_t image = over.begin; image < images; image += over.step) {
    const std::int64_t first = image * pixels * channels;
    const Stride along = along_row();
    for (std::int64_t pixel = along.begin; pixel < pixels; pixel += along.step) {
      for (int channel = 0; channel < channels; ++channel) {
        const auto value = static_cast<float>(from[first + pixel * channels + channel]);
        to[first + channel * pixels + pixel] =
            static_cast<Element>(fmaf(value, factors.scale[channel], factors.shift[channel]));
      }
    }
  }
}

}  // namespace

void normalize_images_on_device(const Images& images, void* stream) {
  const std::int64_t pixels = images.rows * images.columns;
  if (images.count * pixels * images.channels == 0) return;
  Factors factors{};
  for (std::size_t i = 0; i < Images::kMaxChannels; ++i) {
    factors.scale[i] = images.scale[i];
    factors.shift[i] = images.shift[i];
  }
  const auto launch_for = [&](auto* to) {
    launch(normalize<std::remove_pointer_t<decltype(to)>>, images.count, pixels, stream, images.from, to, images.count,
           pixels, static_cast<int>(images.channels), factors);
  };
  if (images.half) {
    launch_for(static_cast<__half*>(images.to));
  } else {
    launch_for(static_cast<float*>(images.to));
  }
}

}  // namespace service_streamer::cuda
