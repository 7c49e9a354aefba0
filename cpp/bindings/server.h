#pragma once

#include <Python.h>

namespace service_streamer::bindings {

bool make_server_type(PyObject* module);

}  // namespace service_streamer::bindings
