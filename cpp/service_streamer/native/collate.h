#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "service_streamer/native/signature.h"
#include "service_streamer/native/staging.h"
#include "service_streamer/native/tensor.h"

namespace service_streamer::native {

// The bytes of one element of a tensor; the first size_of(dtype) of them are used.
using Scalar = std::array<std::byte, 16>;

enum class PadSide : std::uint8_t { kRight, kLeft };

struct CollateOptions {
  static constexpr int kNone = -1;

  // True: items may differ in the sizes of symbols, and are padded to the largest in the batch. False: only items of
  // equal sizes are put into one batch.
  bool pad = false;
  PadSide side = PadSide::kRight;

  // Sizes are padded up to the next of these, so that the model sees few different shapes. Ascending. Larger sizes are
  // not rounded.
  std::vector<std::int64_t> pad_to;

  // The same for the number of items. The last item is repeated to fill the batch.
  std::vector<std::int64_t> batch_sizes;

  // The padding value of each input.
  std::vector<Scalar> pad_values;

  // Indices of the inputs that the Collator generates, or kNone. The mask has 1 for the data of an item and 0 for
  // padding. The lengths are each item's size of the first symbol.
  int mask = kNone;
  int lengths = kNone;
};

// Makes the inputs of a model from items: stacks and pads them into tensors with a batch dimension. The memory is
// reused by the next batch. Used by one thread at a time. Keeps a reference to the signature.
class Collator {
 public:
  Collator(const Signature& signature, const CollateOptions& options);

  struct Item {
    const TensorView* tensors = nullptr;    // one for each of item_inputs()
    const std::int64_t* extents = nullptr;  // the size of each symbol
    const Event* ready = nullptr;           // see TensorItems
  };

  struct Tensor {
    std::byte* data = nullptr;
    Dtype dtype = Dtype::kFloat32;
    Shape sizes;  // the batch dimension first
  };

  // True if both items may be in one batch.
  bool fit_together(const Item& a, const Item& b) const;

  // Returns the inputs of the model for items that fit together. They are valid until the next call. Throws
  // std::bad_alloc.
  std::span<const Tensor> collate(std::span<const Item> items);

  // The same in two steps, for memory that the caller provides. arrange() computes types and sizes. The caller sets the
  // addresses, and fill() writes the data. If the items are on a device, fill() writes only the generated inputs, and
  // the caller gathers the others on the device.
  std::span<Tensor> arrange(std::span<const Item> items);
  void fill(std::span<const Item> items) const;

  // The size of each symbol in the last batch.
  std::span<const std::int64_t> extents() const { return extents_; }

  // True if the address is in the memory of a tensor that collate() has returned.
  bool holds(const void* address) const;

  std::size_t tensors_per_item() const { return item_inputs_.size(); }

  // Indices of the inputs that items contain: all but the generated ones.
  std::span<const std::size_t> item_inputs() const { return item_inputs_; }

  const CollateOptions& options() const { return options_; }

 private:
  void measure(std::span<const Item> items);
  void copy_items(std::span<const Item> items) const;
  std::size_t rows_for(std::size_t items) const;
  Shape sizes_of(const TensorSpec& input, std::size_t rows) const;
  void fill_mask(const Tensor& mask, std::span<const Item> items) const;
  void fill_lengths(const Tensor& lengths, std::span<const Item> items) const;

  const Signature& signature_;
  const CollateOptions options_;
  std::vector<std::size_t> item_inputs_;

  std::vector<std::int64_t> extents_;
  std::vector<Staging> staging_;  // one for each input
  std::vector<Tensor> tensors_;
};

std::size_t bytes_of(const Collator::Tensor& tensor);

// Copies a tensor into a contiguous one of the same or larger `sizes`, and pads it.
void copy_padded(const TensorView& from, std::byte* to, const Shape& sizes, PadSide side, const Scalar& pad);

// The value 1.
Scalar scalar_one(Dtype dtype);

}  // namespace service_streamer::native
