#pragma once

#include <Python.h>

namespace service_streamer::bindings {

// The Python type NativeWorkers: the threads that run the native model of an engine.
bool make_native_workers_type(PyObject* module);

// Called at the end of the interpreter, after the last wait for the threads. If one still runs a model when the process
// ends, the process ends without destructors: those of the model's library would free what the model uses.
void leave_native_threads();

}  // namespace service_streamer::bindings
