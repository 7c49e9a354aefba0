#include "bindings/python/libraries.h"

namespace service_streamer::bindings {
namespace {

PyObject* loaded(PyObject* library) {
  return PyDict_GetItem(PyImport_GetModuleDict(), library);
}

// Sets `found` once the library is imported.
PyObject* find(PyObject* library, const char* name, PyObject*& found) {
  if (found != nullptr) return found;
  PyObject* module = loaded(library);
  if (module == nullptr || module == Py_None) return nullptr;
  found = PyObject_GetAttrString(module, name);
  if (found == nullptr) PyErr_Clear();  // the import is under way
  return found;
}

}  // namespace

PyTypeObject* numpy_array_class() {
  static PyObject* library = PyUnicode_InternFromString("numpy");
  static PyObject* found = nullptr;
  return reinterpret_cast<PyTypeObject*>(find(library, "ndarray", found));
}

PyTypeObject* torch_tensor_class() {
  static PyObject* library = PyUnicode_InternFromString("torch");
  static PyObject* found = nullptr;
  return reinterpret_cast<PyTypeObject*>(find(library, "Tensor", found));
}

PyObject* asyncio_running_loop() {
  static PyObject* library = PyUnicode_InternFromString("asyncio.events");
  static PyObject* found = nullptr;
  return find(library, "_get_running_loop", found);
}

bool torch_is_loaded() {
  static PyObject* library = PyUnicode_InternFromString("torch");
  static bool found = false;  // once it is, it stays
  if (!found) found = loaded(library) != nullptr;
  return found;
}

bool gevent_is_loaded() {
  static PyObject* library = PyUnicode_InternFromString("gevent");
  static bool found = false;
  if (!found) found = loaded(library) != nullptr;
  return found;
}

PyObject* import_member(const char* module, const char* name) {
  PyObject* imported = PyImport_ImportModule(module);
  PyObject* member = imported != nullptr ? PyObject_GetAttrString(imported, name) : nullptr;
  Py_XDECREF(imported);
  return member;
}

}  // namespace service_streamer::bindings
