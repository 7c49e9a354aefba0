#pragma once

#include <Python.h>

// Classes of libraries that this module does not import. Borrowed; nullptr without an exception if the library is not
// imported, so that it has no objects.

namespace service_streamer::bindings {

PyTypeObject* numpy_array_class();
PyTypeObject* torch_tensor_class();

}  // namespace service_streamer::bindings
