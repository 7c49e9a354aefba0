#include "bindings/python/libraries.h"

#include <atomic>

#include "bindings/python/free_threading.h"
#include "bindings/python/name.h"

namespace service_streamer::bindings {
namespace {

Name numpy{"numpy"};
Name torch{"torch"};
Name asyncio{"asyncio.events"};
Name gevent{"gevent"};

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
  static std::atomic<PyObject*> found{nullptr};
  return reinterpret_cast<PyTypeObject*>(find(numpy, "ndarray", found));
}

PyTypeObject* torch_tensor_class() {
  static std::atomic<PyObject*> found{nullptr};
  return reinterpret_cast<PyTypeObject*>(find(torch, "Tensor", found));
}

PyObject* asyncio_running_loop() {
  static std::atomic<PyObject*> found{nullptr};
  return find(asyncio, "_get_running_loop", found);
}

bool torch_is_loaded() {
  static std::atomic<bool> found{false};
  return is_loaded(torch, found);
}

bool gevent_is_loaded() {
  static std::atomic<bool> found{false};
  return is_loaded(gevent, found);
}

PyObject* import_member(const char* module, const char* name) {
  PyObject* imported = PyImport_ImportModule(module);
  PyObject* member = imported != nullptr ? PyObject_GetAttrString(imported, name) : nullptr;
  Py_XDECREF(imported);
  return member;
}

}  // namespace service_streamer::bindings
