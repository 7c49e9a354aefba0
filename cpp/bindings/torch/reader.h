#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

#include "service_streamer/native/model.h"
#include "service_streamer/torch/model.h"

namespace service_streamer::bindings {

// Reads the items of a request, a tuple, for a model: tensors and whatever has a buffer (numpy arrays). Nothing is copied; what they
// are made of is kept as long as the items are. `keys`: theirs, or none. nullptr with an exception set that names the input, what
// came, and what the model wants.
native::ItemsRef read_items(PyObject* items, std::vector<std::uint64_t> keys, const torch_backend::Model& model);

}  // namespace service_streamer::bindings
