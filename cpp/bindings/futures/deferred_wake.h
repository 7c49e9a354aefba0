#pragma once

#include <Python.h>

#include <utility>

#include "service_streamer/waiting/waiter.h"

namespace service_streamer::bindings {

// The wake-up of the only caller whom a batch has answered, put off until its worker has released the GIL: woken before, he
// mostly comes on the same core, takes it from the worker, and sleeps again until he has the GIL. No code of the user's runs
// meanwhile, for it might wait for that caller. Destroyed without the GIL when the interpreter finalises.
class DeferredWake {
 public:
  DeferredWake() = default;
  DeferredWake(const DeferredWake&) = delete;
  DeferredWake& operator=(const DeferredWake&) = delete;
  ~DeferredWake() { wake(); }

  void defer(Waiter& caller) { caller_ = &caller; }

  void wake() {
    if (Waiter* caller = std::exchange(caller_, nullptr)) caller->parker.unpark();
  }

  // To be called before a reference (or nullptr) goes: wakes if what goes with it might be an object with a finaliser.
  void before_dropping(PyObject* object) {
    if (caller_ != nullptr && !outlives(object)) wake();
  }

 private:
  // Whether somebody else has the object, or, where it is a plain list or tuple, all that is in it, be it there several times.
  static bool outlives(PyObject* object) {
    if (object == nullptr || Py_REFCNT(object) > 1) return true;
    if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) return false;
    PyObject** items = PySequence_Fast_ITEMS(object);
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (Py_REFCNT(items[i]) <= size) return false;
    }
    return true;
  }

  Waiter* caller_ = nullptr;
};

}  // namespace service_streamer::bindings
