#include "service_streamer/torch/dtypes.h"

#include <algorithm>
#include <array>

namespace service_streamer::torch_backend {
namespace {

// In the order of native::Dtype.
constexpr std::array kTypes{c10::kBool,  c10::kByte,   c10::kChar,         c10::kShort,
                            c10::kInt,   c10::kLong,   c10::kHalf,         c10::kBFloat16,
                            c10::kFloat, c10::kDouble, c10::kComplexFloat, c10::kComplexDouble};

}  // namespace

c10::ScalarType scalar_type_of(native::Dtype dtype) {
  return kTypes[static_cast<std::size_t>(dtype)];
}

bool dtype_of(c10::ScalarType type, native::Dtype& dtype) {
  const auto* const found = std::find(kTypes.begin(), kTypes.end(), type);
  if (found == kTypes.end()) return false;
  dtype = static_cast<native::Dtype>(found - kTypes.begin());
  return true;
}

}  // namespace service_streamer::torch_backend
