#pragma once

// As much of CUDA's runtime as our kernels and their tests need, on the CPU: the threads of a launch run one after the other in
// the calling thread, before it returns, and memory of the device is the host's, so that sanitizers see what a kernel reads and
// writes. Names and types are CUDA's.

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#define __global__  // NOLINT(bugprone-reserved-identifier)
#define __device__  // NOLINT(bugprone-reserved-identifier)

enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation, cudaErrorInvalidConfiguration };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
using cudaStream_t = void*;

struct dim3 {
  unsigned x;
  unsigned y;
  unsigned z;
  dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1) : x(x_size), y(y_size), z(z_size) {}
};

struct cudaFuncAttributes {};

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

// Of the thread of a kernel that is running.
inline dim3 gridDim;
inline dim3 blockDim;
inline dim3 blockIdx;
inline dim3 threadIdx;

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "invalid configuration argument";
}

inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

inline cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  *data = std::malloc(bytes);
  return *data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

inline cudaError_t cudaFree(void* data) {
  std::free(data);
  return cudaSuccess;
}

inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}

template <typename... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* /*attributes*/, void (* /*kernel*/)(Parameters...)) {
  return cudaSuccess;
}

// With the limits that a device has.
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const auto [grid, block, shared, stream] = *config;
  const bool small = grid.x >= 1 && grid.x < 1U << 31 && grid.y >= 1 && grid.y < 1U << 16 && block.x * block.y <= 1024;
  if (!small || grid.z != 1 || block.y != 1 || block.z != 1) return cudaErrorInvalidConfiguration;
  gridDim = grid;
  blockDim = block;
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
      for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) kernel(arguments...);
    }
  }
  return cudaSuccess;
}
