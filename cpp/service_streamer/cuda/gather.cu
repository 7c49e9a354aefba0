#include <cstring>

#include "service_streamer/cuda/gather.h"
#include "service_streamer/cuda/launch.cuh"

namespace service_streamer::cuda {
namespace {

struct alignas(16) Sixteen {
  std::uint64_t halves[2];
};

struct Layout {
  std::int64_t sizes[native::kMostDimensions];  // of a row
  int rank;
  bool left;
  std::int64_t rows;
  std::int64_t per_row;  // numbers
};

// Where each number lies in its row is found from the innermost dimension outwards; what is left for the outermost is its place there.
template <typename Number>
__global__ void gather(const GatherRow* __restrict__ rows, Number* __restrict__ to, Layout layout, Number pad) {
  const Stride over = along_rows();
  for (std::int64_t number = over.begin; number < layout.rows; number += over.step) {
    const GatherRow& row = rows[number];
    const Stride along = along_row();
    for (std::int64_t at = along.begin; at < layout.per_row; at += along.step) {
      std::int64_t rest = at;
      std::int64_t offset = 0;
      bool inside = true;
      for (int i = layout.rank - 1; i >= 0; --i) {
        std::int64_t place = rest;
        if (i > 0) {
          place = rest % layout.sizes[i];
          rest /= layout.sizes[i];
        }
        if (layout.left) place -= layout.sizes[i] - row.sizes[i];
        inside = inside && place >= 0 && place < row.sizes[i];
        offset += place * row.strides[i];
      }
      to[number * layout.per_row + at] = inside ? *reinterpret_cast<const Number*>(row.data + offset) : pad;
    }
  }
}

template <typename Number>
void launch_gather(const Gather& given, const Layout& layout, void* stream) {
  Number pad;
  std::memcpy(&pad, given.pad.data(), sizeof pad);
  launch(gather<Number>, layout.rows, layout.per_row, stream, given.rows, reinterpret_cast<Number*>(given.to), layout,
         pad);
}

}  // namespace

// The driver may be older than what compiled them, or the device none of those they were compiled for.
bool has_kernels() {
  static const bool they_run = [] {
    cudaFuncAttributes attributes{};
    const bool found = cudaFuncGetAttributes(&attributes, gather<std::uint8_t>) == cudaSuccess;
    cudaGetLastError();  // else the next call would tell of it
    return found;
  }();
  return they_run;
}

void gather_padded(const Gather& given, void* stream) {
  Layout layout{};
  layout.rank = static_cast<int>(given.sizes.rank());
  layout.left = given.side == native::PadSide::kLeft;
  layout.rows = given.count;
  layout.per_row = 1;
  for (std::size_t i = 0; i < given.sizes.rank(); ++i) {
    layout.sizes[i] = given.sizes[i];
    layout.per_row *= layout.sizes[i];
  }
  if (layout.rows * layout.per_row == 0) return;
  switch (given.number_size) {
    case 1:
      return launch_gather<std::uint8_t>(given, layout, stream);
    case 2:
      return launch_gather<std::uint16_t>(given, layout, stream);
    case 4:
      return launch_gather<std::uint32_t>(given, layout, stream);
    case 8:
      return launch_gather<std::uint64_t>(given, layout, stream);
    case 16:
      return launch_gather<Sixteen>(given, layout, stream);
    default:
      throw std::logic_error("no number has so many bytes: " + std::to_string(given.number_size));
  }
}

}  // namespace service_streamer::cuda
