#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace service_streamer::cuda {

constexpr int kThreads = 256;  // of a block

// Blocks for so many numbers; each thread goes on with the number that is a grid away, so that more need not be.
inline int blocks_for(std::int64_t numbers) {
  constexpr std::int64_t kMost = 65535;
  return static_cast<int>(std::clamp<std::int64_t>((numbers + kThreads - 1) / kThreads, 1, kMost));
}

// After a launch.
inline void check_launch(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

}  // namespace service_streamer::cuda
