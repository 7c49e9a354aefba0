#pragma once

#include <Python.h>

#include <initializer_list>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/options.h"

namespace service_streamer::bindings {

// Each returns false with an exception set that names the value received.

// The items of one request as a new tuple: of a list, tuple, array, tensor or other sequence with a length.
PyObject* items_from(PyObject* batch);
PyObject* item_list_from(PyObject* batch);  // as a new list

// A negative timeout: a mistake, or time that is over, as concurrent.futures has it for waits.
enum class Negative { kIsWrong, kIsOver };

// None: TimePoint::max(); otherwise so many seconds from now.
bool deadline_from(PyObject* timeout, TimePoint& deadline, Negative negative = Negative::kIsWrong);

bool priority_from(PyObject* value, int& priority);

// Batching options as Python has them, which checks them for users (_options.py): here only what would break the core.
bool set_batching(EngineOptions& options, Py_ssize_t batch_size, double max_latency, const char* policy);
// The same for configure(): nullptr or None is not given.
bool change_from(PyObject* batch_size, PyObject* max_latency, PyObject* policy, EngineChange& change);

// The index of `value` in `names`.
bool choose(const char* name, const char* value, std::initializer_list<const char*> names, int& index);

// So many seconds, at least 0; a century at most.
Duration duration_from(double seconds);

}  // namespace service_streamer::bindings
