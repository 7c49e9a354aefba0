#pragma once

#include <Python.h>

#include <cstddef>
#include <vector>

#include "service_streamer/ipc/inlet.h"

namespace service_streamer::bindings {

// Requests for an Inlet as they were given, and the bytes objects that their bodies are copied from. Lies on the heap, for much is
// copied without the GIL, and is to be cleared before it goes.
struct Submissions {
  std::vector<ipc::Inlet::Submission> all;
  std::vector<PyObject*> bodies;
  std::size_t size = 0;  // bytes of all bodies

  // These return false with an exception set.
  bool add(PyObject* id, PyObject* body, PyObject* deadline, PyObject* priority);
  bool read(PyObject* sequence);
  bool submit(ipc::Inlet& inlet);

  void clear();
};

// What became of one: its number of items, or nullptr with ValueError or StreamerClosed set.
PyObject* items_or_raise(const ipc::Inlet::Submission& submission);

// The same as a list, with a str for what would be raised.
PyObject* items_or_reasons(const std::vector<ipc::Inlet::Submission>& submissions);

}  // namespace service_streamer::bindings
