#pragma once

#include <Python.h>

namespace service_streamer::bindings {

bool make_broker_egress_type(PyObject* module);

}  // namespace service_streamer::bindings
