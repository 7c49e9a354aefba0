#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "service_streamer/native/tensor_call.h"
#include "service_streamer/torch/model.h"

namespace service_streamer::bindings {

// Makes the results of requests: tensors or numpy arrays, without padding, in the structure that the model returns. All
// functions require the GIL.
enum class OutputKind { kTensor, kNumpy };

struct OutputForm {
  OutputKind kind = OutputKind::kTensor;
  pybind11::object type = pybind11::none();  // is called with each tuple of outputs, as torch.return_types.topk
};

// Returns a new list with the outputs of each item. nullptr with an exception set on failure.
PyObject* items_of(const std::vector<native::OutputRange>& ranges, const torch_backend::Model& model,
                   const OutputForm& form);

// Returns the outputs of all items in one batch. Padded outputs are cut to the longest item. nullptr with an exception
// set on failure.
PyObject* batch_of(const std::vector<native::OutputRange>& ranges, const torch_backend::Model& model,
                   const OutputForm& form);

}  // namespace service_streamer::bindings
