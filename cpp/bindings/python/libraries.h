#pragma once

#include <Python.h>

// What C++ uses of other libraries by its name.

namespace service_streamer::bindings {

// Of libraries that C++ does not import: borrowed; nullptr or false, without an exception, while they are not imported.
PyTypeObject* numpy_array_class();
PyTypeObject* torch_tensor_class();
PyObject* asyncio_running_loop();  // the function that returns the loop of this thread, or None
bool torch_is_loaded();
bool gevent_is_loaded();  // the calling thread may be a greenlet

// Imports a member of a module: a new reference; nullptr with an exception set.
PyObject* import_member(const char* module, const char* name);

}  // namespace service_streamer::bindings
