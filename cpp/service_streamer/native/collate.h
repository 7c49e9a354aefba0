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

// The bytes of one number.
using Number = std::array<std::byte, 16>;

enum class PadSide : std::uint8_t { kRight, kLeft };

struct CollateOptions {
  static constexpr int kNone = -1;

  // Items of one batch may differ in the sizes of symbols: all are padded to the largest. False: they go in groups of equal size.
  bool pad = false;
  PadSide side = PadSide::kRight;

  // Sizes of symbols that padding goes up to, ascending: few different shapes. Larger ones stay as they are.
  std::vector<std::int64_t> pad_to;

  // The same for the number of items: the last one is repeated.
  std::vector<std::int64_t> batch_sizes;

  // Of each input, what is put where an item has nothing.
  std::vector<Number> pad_values;

  // Inputs that are made here, by number: 1 where an item has something and 0 elsewhere; the size of the first symbol.
  int mask = kNone;
  int lengths = kNone;
};

// Puts items side by side into tensors with a batch dimension. Belongs to one worker.
class Collator {
 public:
  Collator(const Signature& signature, const CollateOptions& options);

  // One item: its tensors, and the sizes of its symbols. Only items of one key go together.
  struct Item {
    const TensorView* tensors = nullptr;
    const std::int64_t* extents = nullptr;
    std::uint64_t key = 0;
    const Event* ready = nullptr;  // see TensorItems
  };

  struct Tensor {
    std::byte* data = nullptr;
    Dtype dtype = Dtype::kFloat32;
    Shape sizes;  // with the batch
  };

  // Whether two items may be in one batch.
  bool fit(const Item& a, const Item& b) const;

  // The inputs of the model for these items, all of which fit. Valid until the next call. Throws std::bad_alloc.
  std::span<const Tensor> collate(std::span<const Item> items);

  // The same in two steps, for inputs in somebody else's memory: their types and sizes, and what is put into them once they
  // have an address. Of items that lie on a device only what is made here is: whoever knows the device gathers the others.
  std::span<Tensor> arrange(std::span<const Item> items);
  void fill(std::span<const Item> items) const;

  // The sizes of the symbols in the last batch.
  std::span<const std::int64_t> extents() const { return extents_; }

  // Whether an address lies in what collate() gave.
  bool holds(const void* address) const;

  std::size_t tensors_per_item() const { return given_.size(); }

  // Which inputs come from items, by number.
  std::span<const std::size_t> given() const { return given_; }

  const CollateOptions& options() const { return options_; }

 private:
  void measure(std::span<const Item> items);
  void copy_given(std::span<const Item> items) const;
  std::size_t rows_for(std::size_t items) const;
  Shape sizes_of(const TensorSpec& input, std::size_t rows) const;
  void fill_mask(const Tensor& mask, std::span<const Item> items) const;
  void fill_lengths(const Tensor& lengths, std::span<const Item> items) const;

  const Signature& signature_;
  const CollateOptions options_;
  std::vector<std::size_t> given_;

  std::vector<std::int64_t> extents_;
  std::vector<Staging> staging_;  // of each input
  std::vector<Tensor> tensors_;
};

std::size_t bytes_of(const Collator::Tensor& tensor);

// Copies a tensor into a larger one that is contiguous, and pads it there. `number`: the bytes of one.
void copy_padded(const TensorView& from, std::byte* to, const Shape& sizes, PadSide side, const Number& number);

// The bytes of a 1.
Number one_of(Dtype dtype);

}  // namespace service_streamer::native
