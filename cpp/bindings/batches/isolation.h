#pragma once

#include <Python.h>

#include <memory>

#include "service_streamer/batching/isolation.h"

namespace service_streamer::bindings {

void make_isolation_type(PyObject* module);  // throws as pybind11 does

// A new reference; nullptr with an exception set.
PyObject* make_isolation(const std::shared_ptr<Isolation>& isolation);

// The Isolation in an object of make_isolation(); nullptr with TypeError set for other objects.
Isolation* isolation_of(PyObject* object);

}  // namespace service_streamer::bindings
