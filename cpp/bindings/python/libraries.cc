#include "bindings/python/libraries.h"

namespace service_streamer::bindings {
namespace {

// Sets `found` once the library is imported.
PyTypeObject* find(PyObject* library, PyObject* name, PyTypeObject*& found) {
  if (found != nullptr) return found;
  PyObject* module = PyDict_GetItem(PyImport_GetModuleDict(), library);
  if (module == nullptr || module == Py_None) return nullptr;
  found = reinterpret_cast<PyTypeObject*>(PyObject_GetAttr(module, name));
  if (found == nullptr) PyErr_Clear();  // the import is under way
  return found;
}

}  // namespace

PyTypeObject* numpy_array_class() {
  static PyObject* library = PyUnicode_InternFromString("numpy");
  static PyObject* name = PyUnicode_InternFromString("ndarray");
  static PyTypeObject* found = nullptr;
  return find(library, name, found);
}

PyTypeObject* torch_tensor_class() {
  static PyObject* library = PyUnicode_InternFromString("torch");
  static PyObject* name = PyUnicode_InternFromString("Tensor");
  static PyTypeObject* found = nullptr;
  return find(library, name, found);
}

}  // namespace service_streamer::bindings
