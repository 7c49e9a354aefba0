#pragma once

#include <c10/core/ScalarType.h>

#include "service_streamer/native/tensor.h"

namespace service_streamer::torch_backend {

c10::ScalarType scalar_type_of(native::Dtype dtype);

// Returns false if models do not support the type.
bool dtype_of(c10::ScalarType type, native::Dtype& dtype);

}  // namespace service_streamer::torch_backend
