#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

// Before a parameter with an array: its elements are read where CUDA has put them. Otherwise each thread copies the
// array to its stack first, because the compiler does not know the index. Not for GPUs before sm_70.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
#define SERVICE_STREAMER_GRID_CONSTANT __grid_constant__
#else
#define SERVICE_STREAMER_GRID_CONSTANT
#endif

namespace service_streamer::cuda {

// The first index of a thread, and the distance to its next index. For the elements of a row, and for rows.
struct Stride {
  std::int64_t begin;
  std::int64_t step;
};

__device__ inline Stride along_row() {
  return {static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
          static_cast<std::int64_t>(gridDim.x) * blockDim.x};
}

__device__ inline Stride along_rows() {
  return {blockIdx.y, gridDim.y};
}

// Launches a kernel over a number of rows with a number of elements each. If there are more than threads, each thread
// handles several: see along_row() and along_rows(). Does not wait. Throws std::runtime_error with the message of CUDA.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), std::int64_t rows, std::int64_t elements, void* stream,
            Arguments&&... arguments) {
  constexpr std::int64_t kThreads = 256;      // per block
  constexpr std::int64_t kMaxBlocks = 65535;  // the limit of CUDA in the second direction
  const std::int64_t blocks_along_row = std::clamp<std::int64_t>((elements + kThreads - 1) / kThreads, 1, kMaxBlocks);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks_along_row),
                        static_cast<unsigned>(std::clamp<std::int64_t>(rows, 1, kMaxBlocks)));
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
  if (error == cudaSuccess) return;
  cudaGetLastError();  // clears the error, which the next call would report otherwise
  throw std::runtime_error(std::string("a kernel cannot be launched: ") + cudaGetErrorString(error));
}

}  // namespace service_streamer::cuda
