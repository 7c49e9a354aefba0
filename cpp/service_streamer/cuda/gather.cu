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

// A thread for each number of the batch: where it lies in its row is found from the innermost dimension outwards.
template <typename Number>
__global__ void gather(const GatherRow* __restrict__ rows, Number* __restrict__ to, Layout layout, Number pad) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t total = layout.rows * layout.per_row;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < total; at += step) {
    const GatherRow& row = rows[at / layout.per_row];
    std::int64_t rest = at % layout.per_row;
    std::int64_t offset = 0;
    bool inside = true;
    for (int i = layout.rank - 1; i >= 0; --i) {
      std::int64_t place = rest % layout.sizes[i];
      rest /= layout.sizes[i];
      if (layout.left) place -= layout.sizes[i] - row.sizes[i];
      inside = inside && place >= 0 && place < row.sizes[i];
      offset += place * row.strides[i];
    }
    to[at] = inside ? *reinterpret_cast<const Number*>(row.data + offset) : pad;
  }
}

template <typename Number>
void launch(const Gather& given, const Layout& layout, cudaStream_t stream) {
  Number pad;
  std::memcpy(&pad, given.pad.data(), sizeof pad);
  gather<Number><<<blocks_for(layout.rows * layout.per_row), kThreads, 0, stream>>>(
      given.rows, reinterpret_cast<Number*>(given.to), layout, pad);
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
  layout.rank = static_cast<int>(given.sizes.rank()) - 1;
  layout.left = given.side == native::PadSide::kLeft;
  layout.rows = given.sizes[0];
  layout.per_row = 1;
  for (int i = 0; i < layout.rank; ++i) {
    layout.sizes[i] = given.sizes[static_cast<std::size_t>(i) + 1];
    layout.per_row *= layout.sizes[i];
  }
  if (layout.rows * layout.per_row == 0) return;
  auto* const on = static_cast<cudaStream_t>(stream);
  switch (given.number_size) {
    case 1:
      launch<std::uint8_t>(given, layout, on);
      break;
    case 2:
      launch<std::uint16_t>(given, layout, on);
      break;
    case 4:
      launch<std::uint32_t>(given, layout, on);
      break;
    case 8:
      launch<std::uint64_t>(given, layout, on);
      break;
    case 16:
      launch<Sixteen>(given, layout, on);
      break;
    default:
      throw std::logic_error("no number has so many bytes: " + std::to_string(given.number_size));
  }
  check_launch("gather_padded");
}

}  // namespace service_streamer::cuda
