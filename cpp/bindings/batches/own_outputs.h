#pragma once

#include <Python.h>

namespace service_streamer::bindings {

// Returns the outputs of a model with copies of the arrays and tensors whose memory something else has too: the model
// may write into that memory when it runs again. Such are views of a buffer that the model keeps, kept arrays, and
// memory of other libraries. What only the outputs refer to, and what the items refer to, is not copied.
//
// Looks into lists, tuples and dicts. The caller has the only reference to `outputs` that it knows of, and gives it
// away. `items` is a list or nullptr. Returns a new reference, or nullptr with an exception set: no memory.
PyObject* own_outputs(PyObject* outputs, PyObject* items);

}  // namespace service_streamer::bindings
