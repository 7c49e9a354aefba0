#pragma once

#include <Python.h>

#include <utility>

#include "service_streamer/waiting/waiter.h"

namespace service_streamer::bindings {

// A call of WakeQueue::wake() that a worker thread owes after it has published a batch. The thread makes the call when
// it has released the GIL. A caller that is woken earlier would sleep again at once, to wait for the GIL. Before Python
// code may run in the thread it calls wake() with the GIL held: that code may take long, or wait for the caller.
class DeferredWake {
 public:
  DeferredWake() = default;
  ~DeferredWake() { wake(); }
  DeferredWake(const DeferredWake&) = delete;
  DeferredWake& operator=(const DeferredWake&) = delete;

  void defer() { owed_ = true; }
  void wake() {
    if (std::exchange(owed_, false)) WakeQueue::instance().wake();
  }

  // Called before the thread drops the reference, or nullptr. Calls wake() if this may run a finaliser.
  void before_dropping(PyObject* object) {
    if (owed_ && may_finalise(object)) wake();
  }

 private:
  // A list or tuple of one item, which another object refers to, is the common case.
  static bool may_finalise(PyObject* object) {
    if (object == nullptr || Py_REFCNT(object) > 1) return false;
    if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) return true;
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
    return size > 1 || (size == 1 && Py_REFCNT(PySequence_Fast_GET_ITEM(object, 0)) == 1);
  }

  bool owed_ = false;
};

}  // namespace service_streamer::bindings
