#include "bindings/python/from_core.h"

#include <utility>

namespace service_streamer::bindings {
namespace {

constinit PythonObject* first = nullptr;  // of the list of all

PyObject* look_up(PyObject*, PyObject* names) {
  return PythonObject::look_up(names);
}

PyMethodDef functions[] = {
    {"look_up", look_up, METH_O,
     "look_up($module, names, /)\n--\n\n"
     "Looks up what the core calls in the globals of `_from_core`: a list of its names.\n\n"
     "KeyError: one is missing."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PythonObject::PythonObject(const char* name) noexcept : name_(name), next_(std::exchange(first, this)) {}

PyObject* PythonObject::operator()(PyObject* one, PyObject* another) const {
  PyObject* object = get();
  return object != nullptr ? PyObject_CallFunctionObjArgs(object, one, another, nullptr) : nullptr;
}

PyObject* PythonObject::get() const {
  if (object_ == nullptr) PyErr_Format(PyExc_RuntimeError, "service_streamer is not imported yet, so no %s", name_);
  return object_;
}

PyObject* PythonObject::look_up(PyObject* names) {
  PyObject* found = PyList_New(0);
  for (PythonObject* each = first; found != nullptr && each != nullptr; each = each->next_) {
    PyObject* name = PyUnicode_FromString(each->name_);
    PyObject* object = name != nullptr ? PyObject_GetItem(names, name) : nullptr;
    if (object == nullptr || PyList_Append(found, name) < 0) Py_CLEAR(found);
    if (object != nullptr) Py_XSETREF(each->object_, object);
    Py_XDECREF(name);
  }
  return found;
}

bool make_from_core_function(PyObject* module) {
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace service_streamer::bindings
