#include "bindings/python/libraries.h"

#include <atomic>

#include "bindings/python/free_threading.h"

namespace service_streamer::bindings {
namespace {

// In sys.modules: a new reference, or nullptr without an exception.
PyObject* loaded(PyObject* library) {
  PyObject* module = nullptr;
  if (!find_item(PyImport_GetModuleDict(), library, module)) PyErr_Clear();
  return module;
}

// Sets `found` once the library is imported.
PyObject* find(PyObject* library, const char* name, std::atomic<PyObject*>& found) {
  if (PyObject* known = found.load(std::memory_order_acquire)) return known;
  PyObject* module = loaded(library);
  PyObject* member = module != nullptr && module != Py_None ? PyObject_GetAttrString(module, name) : nullptr;
  Py_XDECREF(module);
  if (member == nullptr) {
    PyErr_Clear();  // it is not imported, or the import is under way
    return nullptr;
  }
  PyObject* first = nullptr;
  if (found.compare_exchange_strong(first, member)) return member;
  Py_DECREF(member);
  return first;
}

// Sets `found` once it is: it stays so.
bool is_loaded(PyObject* library, std::atomic<bool>& found) {
  if (found.load(std::memory_order_relaxed)) return true;
  PyObject* module = loaded(library);
  if (module == nullptr) return false;
  found = true;
  Py_DECREF(module);
  return true;
}

}  // namespace

PyTypeObject* numpy_array_class() {
  static PyObject* library = PyUnicode_InternFromString("numpy");
  static std::atomic<PyObject*> found{nullptr};
  return reinterpret_cast<PyTypeObject*>(find(library, "ndarray", found));
}

PyTypeObject* torch_tensor_class() {
  static PyObject* library = PyUnicode_InternFromString("torch");
  static std::atomic<PyObject*> found{nullptr};
  return reinterpret_cast<PyTypeObject*>(find(library, "Tensor", found));
}

PyObject* asyncio_running_loop() {
  static PyObject* library = PyUnicode_InternFromString("asyncio.events");
  static std::atomic<PyObject*> found{nullptr};
  return find(library, "_get_running_loop", found);
}

bool torch_is_loaded() {
  static PyObject* library = PyUnicode_InternFromString("torch");
  static std::atomic<bool> found{false};
  return is_loaded(library, found);
}

bool gevent_is_loaded() {
  static PyObject* library = PyUnicode_InternFromString("gevent");
  static std::atomic<bool> found{false};
  return is_loaded(library, found);
}

PyObject* import_member(const char* module, const char* name) {
  PyObject* imported = PyImport_ImportModule(module);
  PyObject* member = imported != nullptr ? PyObject_GetAttrString(imported, name) : nullptr;
  Py_XDECREF(imported);
  return member;
}

}  // namespace service_streamer::bindings
