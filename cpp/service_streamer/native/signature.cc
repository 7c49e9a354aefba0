#include "service_streamer/native/signature.h"

#include <algorithm>

namespace service_streamer::native {
namespace {

std::string shape_of(const Signature& signature, const TensorSpec& input) {
  std::string text = "(";
  for (const Dimension& dimension : input.dimensions) {
    if (text.size() > 1) text += ", ";
    text += dimension.symbol == Dimension::kFixed ? std::to_string(dimension.size)
                                                  : signature.symbols[static_cast<std::size_t>(dimension.symbol)].name;
  }
  return text + (input.dimensions.size() == 1 ? ",)" : ")");
}

std::string range_of(const Symbol& symbol, std::int64_t min) {
  if (symbol.max == INT64_MAX) return "at least " + std::to_string(min);
  return std::to_string(min) + " to " + std::to_string(symbol.max);
}

ItemMismatch wrong_size(const Signature& signature, const TensorSpec& input, const TensorView& tensor,
                        const std::string& detail) {
  return {.wrong_type = false,
          .message = "input '" + input.name + "' of an item has the shape " + to_string(tensor.sizes) +
                     ", the model wants " + shape_of(signature, input) + detail};
}

}  // namespace

std::optional<ItemMismatch> check_tensor(const Signature& signature, const TensorSpec& input, const TensorView& tensor,
                                         bool may_grow, std::span<std::int64_t> extents) {
  if (tensor.dtype != input.dtype) {
    return ItemMismatch{.wrong_type = true,
                        .message = "input '" + input.name + "' of an item is " + to_string(tensor.dtype) +
                                   ", the model wants " + to_string(input.dtype)};
  }
  if (tensor.sizes.rank() != input.dimensions.size()) {
    ItemMismatch mismatch = wrong_size(signature, input, tensor, " (items have no batch dimension)");
    mismatch.wrong_type = true;
    return mismatch;
  }
  for (std::size_t i = 0; i < input.dimensions.size(); ++i) {
    const Dimension& dimension = input.dimensions[i];
    const std::int64_t size = tensor.sizes[i];
    if (dimension.symbol == Dimension::kFixed) {
      if (size != dimension.size) return wrong_size(signature, input, tensor, "");
      continue;
    }
    const auto number = static_cast<std::size_t>(dimension.symbol);
    const Symbol& symbol = signature.symbols[number];
    const std::int64_t min = may_grow ? std::min<std::int64_t>(symbol.min, 1) : symbol.min;
    if (size < min || size > symbol.max) {
      return wrong_size(signature, input, tensor, " with " + symbol.name + " of " + range_of(symbol, min));
    }
    if (extents[number] >= 0 && extents[number] != size) {
      return wrong_size(signature, input, tensor,
                        ", where " + symbol.name + " is " + std::to_string(extents[number]) + " in another input");
    }
    extents[number] = size;
  }
  return std::nullopt;
}

}  // namespace service_streamer::native
