#include <cstring>

#include "service_streamer/cuda/gather.h"
#include "service_streamer/cuda/launch.cuh"

namespace service_streamer::cuda {
namespace {

struct alignas(16) Bytes16 {
  std::uint64_t halves[2];
};

struct Layout {
  std::int64_t sizes[native::kMaxDimensions];  // of a row of the result
  int rank;
  bool pad_left;
  std::int64_t rows;
  std::int64_t per_row;  // elements
};

// The index of each element is split into one index per dimension, from the innermost outwards. The outermost needs no
// division.
template <typename Element>
__global__ void gather(const GatherRow* __restrict__ rows, Element* __restrict__ to,
                       const SERVICE_STREAMER_GRID_CONSTANT Layout layout, Element pad) {
  const Stride over = along_rows();
  for (std::int64_t row_index = over.begin; row_index < layout.rows; row_index += over.step) {
    const GatherRow& row = rows[row_index];
    const Stride along = along_row();
    for (std::int64_t at = along.begin; at < layout.per_row; at += along.step) {
      std::int64_t rest = at;
      std::int64_t offset = 0;
      bool inside = true;
      for (int i = layout.rank - 1; i >= 0; --i) {
        std::int64_t index = rest;
        if (i > 0) {
          index = rest % layout.sizes[i];
          rest /= layout.sizes[i];
        }
        if (layout.pad_left) index -= layout.sizes[i] - row.sizes[i];
        inside = inside && index >= 0 && index < row.sizes[i];
        offset += index * row.strides[i];
      }
      to[row_index * layout.per_row + at] = inside ? *reinterpret_cast<const Element*>(row.data + offset) : pad;
    }
  }
}

template <typename Element>
void launch_gather(const Gather& given, const Layout& layout, void* stream) {
  Element pad;
  std::memcpy(&pad, given.pad.data(), sizeof pad);
  launch(gather<Element>, layout.rows, layout.per_row, stream, given.rows, reinterpret_cast<Element*>(given.to), layout,
         pad);
}

}  // namespace

// Asks CUDA for a kernel: the driver may be older than the compiler, or the kernels may not be compiled for this
// device.
bool has_kernels() {
  static const bool found_kernel = [] {
    cudaFuncAttributes attributes{};
    const bool found = cudaFuncGetAttributes(&attributes, gather<std::uint8_t>) == cudaSuccess;
    cudaGetLastError();  // clears the error, which the next call would report otherwise
    return found;
  }();
  return found_kernel;
}

void gather_padded(const Gather& given, void* stream) {
  Layout layout{};
  layout.rank = static_cast<int>(given.sizes.rank());
  layout.pad_left = given.side == native::PadSide::kLeft;
  layout.rows = given.count;
  layout.per_row = 1;
  for (std::size_t i = 0; i < given.sizes.rank(); ++i) {
    layout.sizes[i] = given.sizes[i];
    layout.per_row *= layout.sizes[i];
  }
  if (layout.rows * layout.per_row == 0) return;
  switch (given.element_size) {
    case 1:
      return launch_gather<std::uint8_t>(given, layout, stream);
    case 2:
      return launch_gather<std::uint16_t>(given, layout, stream);
    case 4:
      return launch_gather<std::uint32_t>(given, layout, stream);
    case 8:
      return launch_gather<std::uint64_t>(given, layout, stream);
    case 16:
      return launch_gather<Bytes16>(given, layout, stream);
    default:
      throw std::logic_error("gather_padded() does not support elements of this size in bytes: " +
                             std::to_string(given.element_size));
  }
}

}  // namespace service_streamer::cuda
