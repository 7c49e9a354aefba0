#pragma once

#include <Python.h>

namespace service_streamer::bindings {

// The threads that run the native model of an engine.
bool make_native_workers_type(PyObject* module);

// At the end of the interpreter, when nobody waits for the threads any longer: a model that still computes while the process
// ends would meet the destructors of its own library.
void leave_native_threads();

}  // namespace service_streamer::bindings
