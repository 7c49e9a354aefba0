#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace service_streamer::cuda {

// Where a thread begins in a row, and how far apart are the places that it takes there. The same for rows.
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

// Threads for so many rows of so many places; those of larger ones take several each. Throws std::runtime_error with what CUDA reports.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), std::int64_t rows, std::int64_t places, void* stream,
            Arguments&&... arguments) {
  constexpr std::int64_t kThreads = 256;  // of a block
  constexpr std::int64_t kMost = 65535;   // blocks for the rows, and enough for the places of one
  const std::int64_t along = std::clamp<std::int64_t>((places + kThreads - 1) / kThreads, 1, kMost);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(along), static_cast<unsigned>(std::clamp<std::int64_t>(rows, 1, kMost)));
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
  if (error == cudaSuccess) return;
  cudaGetLastError();  // else the next call would tell of it
  throw std::runtime_error(std::string("a kernel cannot be launched: ") + cudaGetErrorString(error));
}

}  // namespace service_streamer::cuda
