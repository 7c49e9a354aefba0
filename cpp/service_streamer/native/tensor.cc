#include "service_streamer/native/tensor.h"

#include <algorithm>

namespace service_streamer::native {
namespace {

struct Row {
  const char* name;
  std::size_t size;
};

// In the order of Dtype.
constexpr std::array<Row, 12> kDtypes{{{"bool", 1},
                                       {"uint8", 1},
                                       {"int8", 1},
                                       {"int16", 2},
                                       {"int32", 4},
                                       {"int64", 8},
                                       {"float16", 2},
                                       {"bfloat16", 2},
                                       {"float32", 4},
                                       {"float64", 8},
                                       {"complex64", 8},
                                       {"complex128", 16}}};

}  // namespace

std::size_t size_of(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)].size;
}

const char* to_string(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)].name;
}

bool from_string(std::string_view name, Dtype& dtype) {
  const auto* const row =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Row& each) { return name == each.name; });
  if (row == kDtypes.end()) return false;
  dtype = static_cast<Dtype>(row - kDtypes.begin());
  return true;
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(values(), other.values());
}

std::string to_string(const Shape& sizes) {
  std::string text = "(";
  for (const std::int64_t size : sizes.values()) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + (sizes.rank() == 1 ? ",)" : ")");
}

}  // namespace service_streamer::native
