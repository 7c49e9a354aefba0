#include <stdexcept>

#include "service_streamer/cuda/gather.h"
#include "service_streamer/cuda/images.h"

// Compiled in place of the .cu files if there is no nvcc.

namespace service_streamer::cuda {

bool has_kernels() {
  return false;
}

void gather_padded(const Gather& /*gather*/, void* /*stream*/) {
  throw std::logic_error("this build has no CUDA kernels: nvcc was not found");
}

void normalize_images_on_device(const Images& /*images*/, void* /*stream*/) {
  throw std::logic_error("this build has no CUDA kernels: nvcc was not found");
}

}  // namespace service_streamer::cuda
