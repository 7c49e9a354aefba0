#include <algorithm>
#include <cstring>

#include "service_streamer/native/collate.h"

namespace service_streamer::native {
namespace {

// Repeats the value. Each memcpy doubles what has been filled.
void fill(std::byte* to, std::size_t bytes, const Scalar& pad, std::size_t size) {
  if (bytes == 0) return;
  if (std::all_of(pad.begin(), pad.begin() + static_cast<std::ptrdiff_t>(size),
                  [](std::byte byte) { return byte == std::byte{0}; })) {
    std::memset(to, 0, bytes);
    return;
  }
  std::size_t done = std::min(size, bytes);
  std::memcpy(to, pad.data(), done);
  for (; done < bytes; done += std::min(done, bytes - done)) std::memcpy(to + done, to, std::min(done, bytes - done));
}

// The copy of one tensor, dimension by dimension.
class Copy {
 public:
  Copy(const TensorView& from, const Shape& sizes, PadSide side, const Scalar& pad)
      : from_(from), sizes_(sizes), side_(side), pad_(pad), size_(size_of(from.dtype)) {
    // From the innermost dimension outwards: finds the dimensions that are contiguous in both tensors.
    contiguous_from_ = sizes.rank();
    std::size_t bytes = size_;
    std::size_t block = size_;
    blocks_[contiguous_from_] = block;
    for (std::size_t i = sizes.rank(); i-- > 0;) {
      const bool contiguous = contiguous_from_ == i + 1 && from.sizes[i] == sizes[i] &&
                              (from.sizes[i] == 1 || from.strides[i] == static_cast<std::int64_t>(bytes));
      bytes *= static_cast<std::size_t>(sizes[i]);
      block *= static_cast<std::size_t>(sizes[i]);
      blocks_[i] = block;
      if (contiguous) contiguous_from_ = i;
    }
  }

  void run(std::byte* to) const { level(0, from_.data, to); }

 private:
  void level(std::size_t dimension, const std::byte* from, std::byte* to) const {
    if (dimension == contiguous_from_) {
      std::memcpy(to, from, blocks_[dimension]);
      return;
    }
    const std::size_t block = blocks_[dimension + 1];
    const auto count = static_cast<std::size_t>(from_.sizes[dimension]);
    const std::size_t missing = (static_cast<std::size_t>(sizes_[dimension]) - count) * block;
    const std::int64_t stride = from_.strides[dimension];
    if (side_ == PadSide::kLeft) {
      fill(to, missing, pad_, size_);
      to += missing;
    }
    if (dimension + 1 == contiguous_from_ && stride == static_cast<std::int64_t>(block)) {
      if (count > 0) std::memcpy(to, from, count * block);
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        level(dimension + 1, from + static_cast<std::int64_t>(i) * stride, to + i * block);
      }
    }
    if (side_ == PadSide::kRight) fill(to + count * block, missing, pad_, size_);
  }

  const TensorView& from_;
  const Shape& sizes_;
  const PadSide side_;
  const Scalar& pad_;
  const std::size_t size_;
  std::size_t contiguous_from_;                           // this dimension and all inner ones are one memcpy
  std::array<std::size_t, kMaxDimensions + 1> blocks_{};  // bytes of one index of the dimension before
};

}  // namespace

void copy_padded(const TensorView& from, std::byte* to, const Shape& sizes, PadSide side, const Scalar& pad) {
  if (std::ranges::any_of(sizes.values(), [](std::int64_t size) { return size == 0; })) return;
  Copy(from, sizes, side, pad).run(to);
}

Scalar scalar_one(Dtype dtype) {
  Scalar number{};
  const auto store = [&](auto value) { std::memcpy(number.data(), &value, sizeof value); };
  switch (dtype) {
    case Dtype::kFloat16:
      store(std::uint16_t{0x3C00});
      break;
    case Dtype::kBfloat16:
      store(std::uint16_t{0x3F80});
      break;
    case Dtype::kFloat32:
    case Dtype::kComplex64:
      store(1.0F);
      break;
    case Dtype::kFloat64:
    case Dtype::kComplex128:
      store(1.0);
      break;
    case Dtype::kInt16:
      store(std::int16_t{1});
      break;
    case Dtype::kInt32:
      store(std::int32_t{1});
      break;
    case Dtype::kInt64:
      store(std::int64_t{1});
      break;
    case Dtype::kBool:
    case Dtype::kUint8:
    case Dtype::kInt8:
      store(std::uint8_t{1});
      break;
  }
  return number;
}

}  // namespace service_streamer::native
