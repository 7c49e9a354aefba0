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

// A duration in seconds, finite and at least 0; `name` for the message.
bool seconds_from(PyObject* value, const char* name, Duration& duration);

}  // namespace service_streamer::bindings
