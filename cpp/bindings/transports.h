#pragma once

#include <Python.h>

namespace service_streamer::bindings {

// The types and functions of `_core` for other processes and other machines. With SERVICE_STREAMER_PORTABLE
// no_transports.cc, which has none, is compiled instead. False with an exception set.
bool make_transport_types(PyObject* module);

}  // namespace service_streamer::bindings
