#pragma once

#include <Python.h>

namespace service_streamer::bindings {

bool make_inlet_type(PyObject* module);

}  // namespace service_streamer::bindings
