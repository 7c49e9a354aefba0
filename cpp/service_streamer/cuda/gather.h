#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "service_streamer/native/collate.h"
#include "service_streamer/native/tensor.h"

namespace service_streamer::cuda {

// True if the kernels were compiled by nvcc and run on the current device. The first call decides, so a device must be
// in use by then. Without kernels, gather_padded() and normalize_images_on_device() throw std::logic_error.
bool has_kernels();

// A row of a batch, as the kernel reads it from device memory. Strides are in bytes.
struct GatherRow {
  const std::byte* data;
  std::int64_t sizes[native::kMaxDimensions];
  std::int64_t strides[native::kMaxDimensions];
};

// The arguments of gather_padded().
struct Gather {
  const GatherRow* rows = nullptr;  // in device memory
  std::int64_t count = 0;           // number of rows
  std::byte* to = nullptr;          // in device memory
  std::size_t element_size = 0;     // in bytes: 1, 2, 4, 8 or 16
  native::Shape sizes;              // of a row of the result
  native::PadSide side = native::PadSide::kRight;
  native::Scalar pad{};
};

// Describes a gather of `rows` into `to`. Fills in `described`, which has one element for each row. The caller copies
// `described` to the device and sets Gather::rows to the copy.
//
// Dimensions that are contiguous in all rows are merged, because the kernel divides once for each dimension but the
// first. Small elements are combined into larger ones where all rows allow it, because the kernel moves one element per
// thread.
Gather describe_gather(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                       native::PadSide side, const native::Scalar& pad, std::span<GatherRow> described);

// Copies rows of different sizes and any strides into one contiguous tensor, and pads them. One kernel launch on the
// stream (a cudaStream_t) replaces a copy for each row and a fill. Does not wait for it. The result equals
// native::copy_padded() for each row, bit for bit. Throws std::runtime_error with the message of CUDA.
void gather_padded(const Gather& gather, void* stream);

}  // namespace service_streamer::cuda
