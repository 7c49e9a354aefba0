#include "bindings/python/libraries.h"

namespace service_streamer::bindings {
namespace {

// A module that is or will be imported by other code.
class Library {
 public:
  explicit Library(const char* name) : name_(PyUnicode_InternFromString(name)) {}

  // Once it is loaded, it stays.
  bool is_loaded() {
    if (!loaded_) loaded_ = module() != nullptr;
    return loaded_;
  }

  // The member, which is kept in `found`; nullptr: the library is not loaded, or its import is under way.
  PyObject* member(const char* name, PyObject*& found) const {
    if (found != nullptr) return found;
    PyObject* library = module();
    if (library == nullptr || library == Py_None) return nullptr;
    found = PyObject_GetAttrString(library, name);
    if (found == nullptr) PyErr_Clear();
    return found;
  }

 private:
  PyObject* module() const { return PyDict_GetItem(PyImport_GetModuleDict(), name_); }

  PyObject* const name_;
  bool loaded_ = false;
};

Library& torch() {
  static Library library("torch");
  return library;
}

}  // namespace

PyTypeObject* numpy_array_class() {
  static const Library library("numpy");
  static PyObject* found = nullptr;
  return reinterpret_cast<PyTypeObject*>(library.member("ndarray", found));
}

PyTypeObject* torch_tensor_class() {
  static PyObject* found = nullptr;
  return reinterpret_cast<PyTypeObject*>(torch().member("Tensor", found));
}

PyObject* asyncio_running_loop() {
  static const Library library("asyncio.events");
  static PyObject* found = nullptr;
  return library.member("_get_running_loop", found);
}

bool torch_is_loaded() {
  return torch().is_loaded();
}

bool gevent_is_loaded() {
  static Library library("gevent");
  return library.is_loaded();
}

PyObject* import_member(const char* module, const char* name) {
  PyObject* imported = PyImport_ImportModule(module);
  PyObject* member = imported != nullptr ? PyObject_GetAttrString(imported, name) : nullptr;
  Py_XDECREF(imported);
  return member;
}

}  // namespace service_streamer::bindings
