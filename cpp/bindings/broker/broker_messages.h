#pragma once

#include <Python.h>

namespace service_streamer::bindings {

bool make_broker_functions(PyObject* module);

}  // namespace service_streamer::bindings
