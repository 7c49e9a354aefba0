#pragma once

#include <pybind11/pybind11.h>

#include "service_streamer/torch/model.h"

namespace service_streamer::bindings {

// Converts the options dict of python/service_streamer/torch/_native.py, which has checked it. Throws some exception if
// the dict is invalid all the same.
torch_backend::ModelOptions model_options_from(const pybind11::dict& given);

// Converts the options that python/service_streamer/torch/_collate.py makes: padding and batch sizes.
native::CollateOptions collate_options_from(const pybind11::dict& given);

// Converts a number to an element type. Throws what torch throws if the type cannot represent it.
native::Scalar scalar_from(double value, native::Dtype dtype);

}  // namespace service_streamer::bindings
