#pragma once

#include <cstddef>
#include <cstdint>

#include "service_streamer/native/collate.h"
#include "service_streamer/native/tensor.h"

namespace service_streamer::cuda {

// Whether this was built with nvcc, and what was built runs here: asked once a device is in use. Where it was not built the functions
// for a device throw std::logic_error.
bool has_kernels();

// A row of a batch, as the kernel reads it from the device's memory. Strides in bytes.
struct GatherRow {
  const std::byte* data;
  std::int64_t sizes[native::kMostDimensions];
  std::int64_t strides[native::kMostDimensions];
};

GatherRow gather_row_of(const native::TensorView& view);

struct Gather {
  const GatherRow* rows = nullptr;  // on the device
  std::byte* to = nullptr;          // the same
  std::size_t number_size = 0;      // bytes of one number: 1, 2, 4, 8 or 16
  native::Shape sizes;              // of the whole, rows first
  native::PadSide side = native::PadSide::kRight;
  native::Number pad{};
};

// Puts rows of different sizes and any strides side by side into one contiguous tensor, and pads them there: one launch on a stream
// (a cudaStream_t) for what would else be a copy per row and a fill. Does not wait. Its twin on the CPU is native::copy_padded(),
// row by row, to which it is equal bit for bit. Throws std::runtime_error with what CUDA reports.
void gather_padded(const Gather& gather, void* stream);

}  // namespace service_streamer::cuda
