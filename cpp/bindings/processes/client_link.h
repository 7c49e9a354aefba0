#pragma once

#include <Python.h>

namespace service_streamer::bindings {

bool make_client_link_type(PyObject* module);

}  // namespace service_streamer::bindings
