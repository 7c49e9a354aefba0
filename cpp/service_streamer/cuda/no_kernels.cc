#include <stdexcept>

#include "service_streamer/cuda/gather.h"
#include "service_streamer/cuda/images.h"

// Where there was no nvcc; the files of CUDA elsewhere.

namespace service_streamer::cuda {

bool has_kernels() {
  return false;
}

void gather_padded(const Gather& /*gather*/, void* /*stream*/) {
  throw std::logic_error("built without CUDA's compiler");
}

void normalize_images_on_device(const Images& /*images*/, void* /*stream*/) {
  throw std::logic_error("built without CUDA's compiler");
}

}  // namespace service_streamer::cuda
