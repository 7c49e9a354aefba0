#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

#include "service_streamer/native/model.h"
#include "service_streamer/torch/model.h"

namespace service_streamer::bindings {

// Reads the items of a request for a model. `items` is a tuple of tensors or objects with the buffer protocol (numpy
// arrays), in the input structure of the model. Nothing is copied; the result keeps the objects alive. Requires
// the GIL. On failure, returns nullptr with an exception set that names the input, what it is, and what the model
// expects.
native::ItemsRef read_items(PyObject* items, const torch_backend::Model& model);

}  // namespace service_streamer::bindings
