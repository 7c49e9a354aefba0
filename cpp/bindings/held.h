#pragma once

#include <Python.h>

#include <string>
#include <string_view>
#include <vector>

#include "service_streamer/ipc/broker_entries.h"

// The entries of a broker's queue on their way through an Inlet, without a step of Python's for each. All under the GIL, but for copying
// and submitting what is long.

namespace service_streamer::bindings {

struct HeldObject {
  PyObject_HEAD
  PyObject* inlet;
  PyObject* ring;  // called when it gets fewer
  ipc::HeldEntries* entries;
};

inline HeldObject* held_of(PyObject* self) {
  return reinterpret_cast<HeldObject*>(self);
}

bool make_held_type(PyObject* module);

// Methods; held.cc says what they do.
PyObject* held_take_in(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* held_answer(PyObject* self, PyObject* args, PyObject* kwargs);

// False with an exception set.
bool ring(HeldObject* self);

inline std::string_view text_of(PyObject* bytes) {
  return {PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

inline PyObject* bytes_of(std::string_view text) {
  return PyBytes_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

// Appends a new reference, which may be nullptr with an exception set; false then.
inline bool append(PyObject* list, PyObject* element) {
  const bool appended = element != nullptr && PyList_Append(list, element) == 0;
  Py_XDECREF(element);
  return appended;
}

// A new list of bytes; nullptr with an exception set.
PyObject* bytes_list(const std::vector<std::string>& texts);

}  // namespace service_streamer::bindings
