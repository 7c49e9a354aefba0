#include "bindings/futures/greenlets.h"

#include "bindings/futures/callbacks.h"
#include "bindings/futures/hub_waits.h"
#include "bindings/python/errors.h"
#include "bindings/python/name.h"

namespace service_streamer::bindings {
namespace {

Name parent_name{"parent"};

// Whether the greenlet can switch to that hub, which may not be the hub of the thread any more. A child of the hub can,
// and nearly all greenlets are its children; for others gevent is asked. May set an exception.
bool is_hub_of(PyObject* greenlet, HubWaitsObject* waits) {
  PyObject* parent = PyObject_GetAttr(greenlet, parent_name);
  Py_XDECREF(parent);
  if (parent == waits->hub) return true;
  PyObject* hub = parent != nullptr ? PyObject_CallNoArgs(waits->get_hub) : nullptr;
  Py_XDECREF(hub);  // the thread keeps it
  return hub == waits->hub;
}

// The HubWaits of the hub that the current greenlet can switch to, or None: a new reference; nullptr with an exception
// set.
PyObject* find_waits(PyObject*& greenlet) {
  PyObject* waits = Py_XNewRef(waits_of_thread());
  if (waits != nullptr) {
    greenlet = PyObject_CallNoArgs(waits_of(waits)->get_current);
    if (greenlet != nullptr && is_hub_of(greenlet, waits_of(waits))) return waits;
    Py_CLEAR(greenlet);
    Py_DECREF(waits);
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  waits = python::open_waits();
  if (waits == nullptr || waits == Py_None) return waits;
  greenlet = keep(waits) ? PyObject_CallNoArgs(waits_of(waits)->get_current) : nullptr;
  if (greenlet == nullptr) Py_CLEAR(waits);
  return waits;
}

// Switches to the hub until this greenlet is switched to; false with the exception that it was switched to with.
bool switch_to_hub(HubWaitsObject* waits) {
  PyObject* back = switch_to(waits->hub);
  Py_XDECREF(back);
  return back != nullptr;
}

// The same, for at most so many seconds.
bool switch_to_hub_for(HubWaitsObject* waits, PyObject* wait, PyObject* seconds) {
  PyObject* timer = PyObject_CallMethod(reinterpret_cast<PyObject*>(waits), "start_timer", "OO", seconds, wait);
  if (timer == nullptr) return false;
  const bool back = switch_to_hub(waits);
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyObject* none = PyObject_CallMethod(reinterpret_cast<PyObject*>(waits), "stop_timer", "O", timer);
  if (none == nullptr) PyErr_WriteUnraisable(timer);
  Py_XDECREF(none);
  Py_DECREF(timer);
  PyErr_Restore(type, error, traceback);
  return back;
}

// The same as a Wait that is posted when the request ends.
bool wait_as(PyObject* greenlet, HubWaitsObject* waits, FutureObject* future, PyObject* seconds) {
  PyObject* wait = wait_type->tp_alloc(wait_type, 0);
  if (wait == nullptr) return false;
  bool back = enter(waits, wait_of(wait), greenlet);
  if (back) {
    if (attach(future, waits->mailbox, wait)) {
      back = seconds == Py_None ? switch_to_hub(waits) : switch_to_hub_for(waits, wait, seconds);
    } else {
      back = PyErr_Occurred() == nullptr;  // it has ended
    }
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    leave(wait_of(wait));
    PyErr_Restore(type, error, traceback);
  }
  Py_DECREF(wait);
  return back;
}

}  // namespace

int wait_in_greenlet(FutureObject* future, PyObject* seconds) {
  PyObject* greenlet = nullptr;
  PyObject* waits = find_waits(greenlet);
  if (waits == nullptr) return -1;
  int waited = 0;
  if (greenlet != nullptr && greenlet != waits_of(waits)->hub) {
    waited = wait_as(greenlet, waits_of(waits), future, seconds) ? 1 : -1;
  }
  Py_XDECREF(greenlet);
  Py_DECREF(waits);
  return waited;
}

void resume(PyObject* token) {
  if (Py_TYPE(token) != wait_type || wait_of(token)->greenlet == nullptr) return;
  PyObject* hub = Py_NewRef(wait_of(token)->waits->hub);
  PyObject* value = wait_switch(token, nullptr);
  if (value == nullptr) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    value = PyObject_CallMethod(hub, "handle_error", "OOOO", token, type, error,
                                traceback != nullptr ? traceback : Py_None);
    if (value == nullptr) PyErr_WriteUnraisable(token);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
  }
  Py_XDECREF(value);
  Py_DECREF(hub);
}

}  // namespace service_streamer::bindings
