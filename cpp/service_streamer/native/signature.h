#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "service_streamer/native/tensor.h"

namespace service_streamer::native {

// A size that is fixed, or the number of a symbol, whose size varies from batch to batch.
struct Dimension {
  static constexpr int kFixed = -1;

  int symbol = kFixed;
  std::int64_t size = 0;
};

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<Dimension> dimensions;  // without the batch
};

// A dimension that varies.
struct Symbol {
  std::string name;
  std::int64_t least = 1;
  std::int64_t most = INT64_MAX;
};

enum class Structure : std::uint8_t { kTensor, kTuple, kList, kDict };

// What a model takes and gives. Each input has a batch dimension before those listed, which its items lack; so have the outputs.
struct Signature {
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;  // may be empty: unknown
  Structure input_structure = Structure::kTensor;
  Structure output_structure = Structure::kTensor;
  std::vector<Symbol> symbols;  // without the batch
  std::int64_t least_batch = 1;
  std::int64_t most_batch = INT64_MAX;
};

// Why an item is not one of the model's.
struct Refusal {
  bool wrong_type = false;  // in kind, dtype or rank, rather than in size
  std::string message;      // names the input, what came, and what the model wants
};

// Checks a tensor of an item against the input that it is for, and notes the sizes of the symbols in it; those noted before (0 or
// more) must be the same. `may_grow`: the batch will be padded, so it may be shorter than the model takes.
std::optional<Refusal> check_tensor(const Signature& signature, const TensorSpec& input, const TensorView& tensor,
                                    bool may_grow, std::span<std::int64_t> extents);

}  // namespace service_streamer::native
