#include "service_streamer/native/collate.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace service_streamer::native {
namespace {

// The smallest bucket that is large enough, or the size itself if there is none.
std::int64_t bucket_for(std::int64_t size, const std::vector<std::int64_t>& buckets) {
  const auto found = std::lower_bound(buckets.begin(), buckets.end(), size);
  return found != buckets.end() ? *found : size;
}

// Checks for overflow: a view with a stride of 0 can have any size without needing memory.
std::size_t times(std::size_t bytes, std::int64_t size) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &product) || product > PTRDIFF_MAX) {
    throw std::bad_alloc();
  }
  return product;
}

// The size of one row, which is the data of one item.
std::size_t row_bytes(const Collator::Tensor& tensor) {
  std::size_t bytes = size_of(tensor.dtype);
  for (const std::int64_t size : tensor.sizes.values().subspan(1)) bytes = times(bytes, size);
  return bytes;
}

}  // namespace

std::size_t bytes_of(const Collator::Tensor& tensor) {
  return times(row_bytes(tensor), tensor.sizes[0]);
}

Collator::Collator(const Signature& signature, const CollateOptions& options)
    : signature_(signature),
      options_(options),
      extents_(signature.symbols.size()),
      staging_(signature.inputs.size()),
      tensors_(signature.inputs.size()) {
  for (std::size_t i = 0; i < signature.inputs.size(); ++i) {
    if (std::cmp_not_equal(i, options.mask) && std::cmp_not_equal(i, options.lengths)) item_inputs_.push_back(i);
  }
}

bool Collator::fit_together(const Item& a, const Item& b) const {
  if ((a.ready == nullptr) != (b.ready == nullptr)) return false;
  return options_.pad || std::equal(a.extents, a.extents + signature_.symbols.size(), b.extents);
}

bool Collator::holds(const void* address) const {
  return std::any_of(staging_.begin(), staging_.end(), [&](const Staging& each) { return each.holds(address); });
}

std::span<const Collator::Tensor> Collator::collate(std::span<const Item> items) {
  arrange(items);
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].data = staging_[i].reserve(bytes_of(tensors_[i]));
  fill(items);
  return tensors_;
}

std::span<Collator::Tensor> Collator::arrange(std::span<const Item> items) {
  measure(items);
  const std::size_t rows = rows_for(items.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const TensorSpec& input = signature_.inputs[i];
    tensors_[i] = {.data = nullptr, .dtype = input.dtype, .sizes = sizes_of(input, rows)};
  }
  return tensors_;
}

void Collator::fill(std::span<const Item> items) const {
  if (items.front().ready == nullptr) copy_items(items);
  if (options_.mask >= 0) fill_mask(tensors_[static_cast<std::size_t>(options_.mask)], items);
  if (options_.lengths >= 0) fill_lengths(tensors_[static_cast<std::size_t>(options_.lengths)], items);
}

void Collator::copy_items(std::span<const Item> items) const {
  for (std::size_t i = 0; i < item_inputs_.size(); ++i) {
    const Tensor& tensor = tensors_[item_inputs_[i]];
    const Scalar& pad = options_.pad_values[item_inputs_[i]];
    const std::size_t bytes = row_bytes(tensor);
    Shape sizes;
    for (const std::int64_t size : tensor.sizes.values().subspan(1)) sizes.push_back(size);
    for (std::size_t row = 0; std::cmp_less(row, tensor.sizes[0]); ++row) {
      const Item& item = items[std::min(row, items.size() - 1)];
      copy_padded(item.tensors[i], tensor.data + row * bytes, sizes, options_.side, pad);
    }
  }
}

// Sets extents_ to the largest size of any item, rounded up to a bucket and limited to what the model accepts.
void Collator::measure(std::span<const Item> items) {
  for (std::size_t i = 0; i < extents_.size(); ++i) {
    std::int64_t& extent = extents_[i];
    extent = 0;
    for (const Item& item : items) extent = std::max(extent, item.extents[i]);
    if (!options_.pad) continue;
    const Symbol& symbol = signature_.symbols[i];
    extent = std::clamp(bucket_for(extent, options_.pad_to), symbol.min, symbol.max);
  }
}

std::size_t Collator::rows_for(std::size_t items) const {
  const auto rows = bucket_for(static_cast<std::int64_t>(items), options_.batch_sizes);
  return static_cast<std::size_t>(std::clamp(rows, signature_.min_batch, signature_.max_batch));
}

Shape Collator::sizes_of(const TensorSpec& input, std::size_t rows) const {
  Shape sizes{static_cast<std::int64_t>(rows)};
  for (const Dimension& dimension : input.dimensions) {
    const bool fixed = dimension.symbol == Dimension::kFixed;
    sizes.push_back(fixed ? dimension.size : extents_[static_cast<std::size_t>(dimension.symbol)]);
  }
  return sizes;
}

void Collator::fill_mask(const Tensor& mask, std::span<const Item> items) const {
  const Scalar one = scalar_one(mask.dtype);
  const std::size_t size = size_of(mask.dtype);
  const std::size_t bytes = row_bytes(mask);
  const auto rows = static_cast<std::size_t>(mask.sizes[0]);
  // The first row is filled with ones and copied from. It is finished last, because the loop runs backwards.
  std::byte* const first = mask.data;
  for (std::size_t at = 0; at < bytes; at += size) std::memcpy(first + at, one.data(), size);
  for (std::size_t row = rows; row-- > 0;) {
    const Item& item = items[std::min(row, items.size() - 1)];
    const std::size_t data_bytes = static_cast<std::size_t>(item.extents[0]) * size;
    std::byte* const to = mask.data + row * bytes;
    const bool left = options_.side == PadSide::kLeft;
    if (row > 0) std::memcpy(left ? to + bytes - data_bytes : to, first, data_bytes);
    std::memset(left ? to : to + data_bytes, 0, bytes - data_bytes);
  }
}

void Collator::fill_lengths(const Tensor& lengths, std::span<const Item> items) const {
  const std::size_t size = size_of(lengths.dtype);
  for (std::size_t row = 0; std::cmp_less(row, lengths.sizes[0]); ++row) {
    const std::int64_t length = items[std::min(row, items.size() - 1)].extents[0];
    std::memcpy(lengths.data + row * size, &length, size);  // little-endian, so int32 takes the low bytes
  }
}

}  // namespace service_streamer::native
