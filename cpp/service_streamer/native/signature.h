#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "service_streamer/native/tensor.h"

namespace service_streamer::native {

// A fixed size, or the index of a symbol whose size varies from batch to batch.
struct Dimension {
  static constexpr int kFixed = -1;

  int symbol = kFixed;
  std::int64_t size = 0;
};

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<Dimension> dimensions;  // without the batch dimension

  // The smallest and the largest number that an input of integers may have, for example of the rows of an embedding.
  std::int64_t min_value = INT64_MIN;
  std::int64_t max_value = INT64_MAX;

  bool limits_values() const { return min_value != INT64_MIN || max_value != INT64_MAX; }
};

// The name of a size that varies, and its range.
struct Symbol {
  std::string name;
  std::int64_t min = 1;
  std::int64_t max = INT64_MAX;
};

enum class Structure : std::uint8_t { kTensor, kTuple, kList, kDict };

// The inputs and outputs of a model. Each has a batch dimension in front of the listed dimensions. Items do not have
// it.
struct Signature {
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;  // empty if they are unknown
  Structure input_structure = Structure::kTensor;
  Structure output_structure = Structure::kTensor;
  std::vector<Symbol> symbols;  // without the batch dimension
  std::int64_t min_batch = 1;
  std::int64_t max_batch = INT64_MAX;
};

// Why the model cannot take an item.
struct ItemMismatch {
  bool wrong_type = false;  // the dtype or rank is wrong, rather than a size
  std::string message;      // names the input, what it is, and what the model expects
};

// Checks a tensor of an item against the specification of its input. Returns nullopt if it fits. `extents` has the size
// of each symbol in the item, or -1 where no earlier tensor of the item has defined it; the function checks and
// completes it. `may_grow`: the batch will be padded, so sizes below the minimum are accepted.
std::optional<ItemMismatch> check_tensor(const Signature& signature, const TensorSpec& input, const TensorView& tensor,
                                         bool may_grow, std::span<std::int64_t> extents);

// Checks the numbers of a tensor that has passed check_tensor(), in host memory. Reads each of them once. Returns
// nullopt if they fit.
std::optional<ItemMismatch> check_values(const TensorSpec& input, const TensorView& tensor);

}  // namespace service_streamer::native
