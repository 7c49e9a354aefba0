#pragma once

#include <Python.h>

#include "service_streamer/base/clock.h"

namespace service_streamer::bindings {

// Each returns false with an exception set that names the value received.

// The items of one request as a new tuple: of a list, tuple, array, tensor or other sequence with a length.
PyObject* items_from(PyObject* batch);

// A negative timeout: a mistake, or time that is over, as concurrent.futures has it for waits.
enum class Negative { kIsWrong, kIsOver };

// None: TimePoint::max(); otherwise so many seconds from now.
bool deadline_from(PyObject* timeout, TimePoint& deadline, Negative negative = Negative::kIsWrong);

bool priority_from(PyObject* value, int& priority);

// So many seconds, at least 0; a century at most.
Duration duration_from(double seconds);

}  // namespace service_streamer::bindings
