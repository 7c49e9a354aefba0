#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

struct Gather {
  const GatherRow* rows = nullptr;  // on the device
  std::int64_t count = 0;           // of rows
  std::byte* to = nullptr;          // on the device
  std::size_t number_size = 0;      // bytes of one number: 1, 2, 4, 8 or 16
  native::Shape sizes;              // of a row there
  native::PadSide side = native::PadSide::kRight;
  native::Number pad{};
};

// Describes rows that are to lie side by side in `to`: `described` has room for one per row. Dimensions that lie in one piece in all rows
// become one, and small numbers larger ones where every row allows it: the kernel divides for each dimension but the first, and
// moves a number per thread. What it returns lacks `rows`, which are `described`, once they are on the device.
Gather describe_gather(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                       native::PadSide side, const native::Number& pad, std::span<GatherRow> described);

// Puts rows of different sizes and any strides side by side into one contiguous tensor, and pads them there: one launch on a stream
// (a cudaStream_t) for what would else be a copy per row and a fill. Does not wait. Its twin on the CPU is native::copy_padded(),
// row by row, to which it is equal bit for bit. Throws std::runtime_error with what CUDA reports.
void gather_padded(const Gather& gather, void* stream);

}  // namespace service_streamer::cuda
