#pragma once

#include <Python.h>

// What a Python without a GIL asks for. There, "with the GIL held" means: attached to the interpreter.

namespace service_streamer::bindings {

#ifdef Py_GIL_DISABLED

inline constexpr bool kHasGil = false;

// While a Locked exists, no other thread is in a scope with a Locked of the same object. It is a critical section: a
// thread that waits, or runs Python code, may lose it. So its scope only moves pointers and numbers, or calls the core.
class Locked {
 public:
  explicit Locked(const void* object) {
    PyCriticalSection_Begin(&section_, static_cast<PyObject*>(const_cast<void*>(object)));
  }
  ~Locked() { PyCriticalSection_End(&section_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyCriticalSection section_;
};

#else

inline constexpr bool kHasGil = true;

// Nothing: the GIL is the lock.
class Locked {
 public:
  explicit Locked(const void*) {}
  ~Locked() {}  // NOLINT(modernize-use-equals-default): a variable of it is used
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
};

#endif

// Finds the value of a key of a dict that other threads may change: a new reference; nullptr: it has none. False with
// an exception set.
inline bool find_item(PyObject* dict, PyObject* key, PyObject*& value) {
#if PY_VERSION_HEX >= 0x030D0000
  return PyDict_GetItemRef(dict, key, &value) >= 0;
#else
  value = Py_XNewRef(PyDict_GetItemWithError(dict, key));
  return value != nullptr || PyErr_Occurred() == nullptr;
#endif
}

}  // namespace service_streamer::bindings
