#include "service_streamer/cuda/gather.h"

#include <algorithm>

namespace service_streamer::cuda {
namespace {

using native::Shape;

// True if the two dimensions can be merged: in every row, they are contiguous and the inner one is not padded.
bool can_merge(std::span<const GatherRow> rows, const Shape& sizes, std::size_t outer, std::size_t inner) {
  return std::ranges::all_of(rows, [&](const GatherRow& row) {
    const bool contiguous =
        sizes[inner] == 1 || row.sizes[outer] <= 1 || row.strides[outer] == row.strides[inner] * row.sizes[inner];
    return row.sizes[inner] == sizes[inner] && contiguous;
  });
}

// Merges all dimensions that can be merged in every row.
void merge_dimensions(std::span<GatherRow> rows, Shape& sizes) {
  const Shape before = sizes;
  sizes = {};
  for (std::size_t inner = 0; inner < before.rank(); ++inner) {
    const std::size_t outer = sizes.rank() - 1;  // the last dimension kept so far
    if (sizes.rank() > 0 && can_merge(rows, before, outer, inner)) {
      sizes[outer] *= before[inner];
      for (GatherRow& row : rows) {
        row.sizes[outer] *= row.sizes[inner];
        if (before[inner] > 1) row.strides[outer] = row.strides[inner];
      }
    } else {
      for (GatherRow& row : rows) {
        row.sizes[sizes.rank()] = row.sizes[inner];
        row.strides[sizes.rank()] = row.strides[inner];
      }
      sizes.push_back(before[inner]);
    }
  }
}

// True if elements can be combined into elements of `bytes` bytes: all addresses, sizes and strides are multiples of
// it.
bool can_widen(std::span<const GatherRow> rows, const Gather& gather, std::size_t bytes) {
  const auto wide = static_cast<std::int64_t>(bytes);
  const auto narrow = static_cast<std::int64_t>(gather.element_size);
  const auto divides = [&](std::int64_t value) { return value % wide == 0; };
  const auto is_aligned = [&](const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data) % bytes == 0; };
  const std::size_t last = gather.sizes.rank() - 1;
  return is_aligned(gather.to) && divides(gather.sizes[last] * narrow) &&
         std::ranges::all_of(rows, [&](const GatherRow& row) {
           return is_aligned(row.data) && row.strides[last] == narrow && divides(row.sizes[last] * narrow) &&
                  std::all_of(row.strides, row.strides + last, divides);
         });
}

// Combines elements into the largest size that the kernel supports.
void widen_elements(std::span<GatherRow> rows, Gather& gather) {
  if (gather.sizes.rank() == 0) return;
  std::size_t bytes = sizeof(native::Scalar);
  while (bytes > gather.element_size && !can_widen(rows, gather, bytes)) bytes /= 2;
  if (bytes == gather.element_size) return;
  const auto factor = static_cast<std::int64_t>(bytes / gather.element_size);
  const std::size_t last = gather.sizes.rank() - 1;
  gather.sizes[last] /= factor;
  for (GatherRow& row : rows) {
    row.sizes[last] /= factor;
    row.strides[last] = static_cast<std::int64_t>(bytes);
  }
  for (std::size_t i = gather.element_size; i < bytes; ++i) gather.pad[i] = gather.pad[i - gather.element_size];
  gather.element_size = bytes;
}

}  // namespace

Gather describe_gather(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                       native::PadSide side, const native::Scalar& pad, std::span<GatherRow> described) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    described[i] = {.data = rows[i].data, .sizes = {}, .strides = {}};
    std::ranges::copy(rows[i].sizes.values(), described[i].sizes);
    std::ranges::copy(rows[i].strides.values(), described[i].strides);
  }
  Gather gather;
  gather.count = static_cast<std::int64_t>(rows.size());
  gather.to = to.data;
  gather.element_size = native::size_of(to.dtype);
  gather.side = side;
  gather.pad = pad;
  for (const std::int64_t size : to.sizes.values().subspan(1)) gather.sizes.push_back(size);
  merge_dimensions(described, gather.sizes);
  widen_elements(described, gather);
  return gather;
}

}  // namespace service_streamer::cuda
