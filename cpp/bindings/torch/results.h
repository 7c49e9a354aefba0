#pragma once

#include <Python.h>

#include <vector>

#include "service_streamer/native/tensor_call.h"
#include "service_streamer/torch/model.h"

namespace service_streamer::bindings {

// What callers get: tensors or numpy arrays, trimmed where they were padded, in the structure that the model returns.
enum class OutputKind { kTensor, kNumpy };

// A new list with the outputs of each item of a request; nullptr with an exception set.
PyObject* items_of(const std::vector<native::Piece>& pieces, const torch_backend::Model& model, OutputKind kind);

// The outputs of all items of a request at once. Where they were padded they are as long as the longest of them.
PyObject* batch_of(const std::vector<native::Piece>& pieces, const torch_backend::Model& model, OutputKind kind);

}  // namespace service_streamer::bindings
