#pragma once

#include <Python.h>

namespace service_streamer::bindings {

// Casts a function of any of Python's C signatures for a PyMethodDef, whose flags say which signature it is.
template <typename Function>
PyCFunction as_method(Function function) noexcept {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// Adds a type to the module; false with an exception set.
inline bool add_type(PyObject* module, PyType_Spec& spec) {
  auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (type == nullptr) return false;
  const bool added = PyModule_AddType(module, type) == 0;
  Py_DECREF(reinterpret_cast<PyObject*>(type));
  return added;
}

}  // namespace service_streamer::bindings
