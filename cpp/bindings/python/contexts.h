#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "service_streamer/base/clock.h"

namespace service_streamer::bindings {

// Appends what a batch tells of a request with a context: (context, items of it in the batch, seconds in the queue,
// index of the first item in the batch). False with an exception set.
inline bool append_context(PyObject* list, const std::string& context, std::uint32_t items, Duration queue_time,
                           std::size_t first) {
  PyObject* bytes = PyBytes_FromStringAndSize(context.data(), static_cast<Py_ssize_t>(context.size()));
  PyObject* tuple = bytes != nullptr ? Py_BuildValue("(NIdn)", bytes, static_cast<unsigned>(items), seconds(queue_time),
                                                     static_cast<Py_ssize_t>(first))
                                     : nullptr;
  const bool appended = tuple != nullptr && PyList_Append(list, tuple) == 0;
  Py_XDECREF(tuple);
  return appended;
}

}  // namespace service_streamer::bindings
