#pragma once

#include <Python.h>

#include "service_streamer/base/clock.h"

namespace service_streamer::bindings {

// Each returns false with an exception set that names the value received.

// The items of one request as a new tuple: of a list, tuple, array, tensor or other sequence with a length.
PyObject* items_from(PyObject* batch);

// None: TimePoint::max(); otherwise so many seconds from now, at least 0.
bool deadline_from(PyObject* timeout, TimePoint& deadline);

bool priority_from(PyObject* value, int& priority);

// So many seconds, at least 0; a century at most.
Duration duration_from(double seconds);

}  // namespace service_streamer::bindings
