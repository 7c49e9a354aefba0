#pragma once

#include <pybind11/pybind11.h>

#include "service_streamer/torch/model.h"

namespace service_streamer::bindings {

// The options of a model as python/service_streamer/torch/_native.py gives them, checked there: what is still wrong with them
// raises some error.
torch_backend::ModelOptions model_options_from(const pybind11::dict& given);

// Those of them that are about any collating, of _collate.py: whether, where and how far to pad, and the numbers of items.
native::CollateOptions collate_options_from(const pybind11::dict& given);

// The bytes of a number of that type. Throws what torch throws where it is none of them.
native::Number number_from(double value, native::Dtype dtype);

}  // namespace service_streamer::bindings
