#include "service_streamer/native/signature.h"

#include <algorithm>
#include <cstring>

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

template <typename Number>
std::int64_t number_at(const std::byte* data) {
  Number number;
  std::memcpy(&number, data, sizeof(number));  // an array may not be aligned
  return static_cast<std::int64_t>(number);
}

// Whether `count` numbers lie in the range. Outside of it, number - min or max - number is negative. If one of the two
// overflows, the other is negative. Their signs are collected without a branch, so the compiler makes vectors of them.
template <typename Number>
bool all_in_range(const std::byte* data, std::int64_t count, std::int64_t stride, const TensorSpec& input) {
  const auto min = static_cast<std::uint64_t>(input.min_value);
  const auto max = static_cast<std::uint64_t>(input.max_value);
  std::uint64_t signs = 0;
  const auto add = [&](const std::byte* at) {
    const auto number = static_cast<std::uint64_t>(number_at<Number>(at));
    signs |= (number - min) | (max - number);
  };
  if (stride == static_cast<std::int64_t>(sizeof(Number))) {
    for (std::int64_t i = 0; i < count; ++i) add(data + i * static_cast<std::int64_t>(sizeof(Number)));
  } else {
    for (std::int64_t i = 0; i < count; ++i) add(data + i * stride);
  }
  return signs >> 63 == 0;
}

// The first number outside of the range.
template <typename Number>
std::optional<std::int64_t> find_outside(const TensorView& tensor, const TensorSpec& input, std::size_t dimension,
                                         const std::byte* data) {
  if (dimension + 1 < tensor.sizes.rank()) {
    for (std::int64_t i = 0; i < tensor.sizes[dimension]; ++i) {
      const auto found = find_outside<Number>(tensor, input, dimension + 1, data + i * tensor.strides[dimension]);
      if (found) return found;
    }
    return std::nullopt;
  }
  const bool single = tensor.sizes.rank() == 0;
  const std::int64_t count = single ? 1 : tensor.sizes[dimension];
  const std::int64_t stride = single ? 0 : tensor.strides[dimension];
  if (all_in_range<Number>(data, count, stride, input)) return std::nullopt;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t number = number_at<Number>(data + i * stride);
    if (number < input.min_value || number > input.max_value) return number;
  }
  return std::nullopt;  // the caller has changed its memory meanwhile
}

std::optional<std::int64_t> find_outside(const TensorView& tensor, const TensorSpec& input) {
  switch (tensor.dtype) {
    case Dtype::kUint8:
      return find_outside<std::uint8_t>(tensor, input, 0, tensor.data);
    case Dtype::kInt8:
      return find_outside<std::int8_t>(tensor, input, 0, tensor.data);
    case Dtype::kInt16:
      return find_outside<std::int16_t>(tensor, input, 0, tensor.data);
    case Dtype::kInt32:
      return find_outside<std::int32_t>(tensor, input, 0, tensor.data);
    case Dtype::kInt64:
      return find_outside<std::int64_t>(tensor, input, 0, tensor.data);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<ItemMismatch> check_values(const TensorSpec& input, const TensorView& tensor) {
  const std::optional<std::int64_t> outside = find_outside(tensor, input);
  if (!outside) return std::nullopt;
  return ItemMismatch{.wrong_type = false,
                      .message = "input '" + input.name + "' of an item has the number " + std::to_string(*outside) +
                                 ", the model wants " + std::to_string(input.min_value) + " to " +
                                 std::to_string(input.max_value)};
}

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
