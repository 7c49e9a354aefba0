#pragma once

#include <pybind11/pybind11.h>

#include "service_streamer/torch/model.h"

namespace service_streamer::bindings {

// The options of a model as python/service_streamer/torch/_native.py gives them, checked there: what is still wrong with them
// raises some error.
torch_backend::ModelOptions model_options_from(const pybind11::dict& given);

}  // namespace service_streamer::bindings
