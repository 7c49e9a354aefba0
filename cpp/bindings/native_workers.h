#pragma once

#include <Python.h>

namespace service_streamer::bindings {

// The threads that run the native model of an engine.
bool make_native_workers_type(PyObject* module);

}  // namespace service_streamer::bindings
