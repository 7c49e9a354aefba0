#pragma once

#include <Python.h>

// The Python objects behind wait_in_greenlet(). Plain C functions, as greenlets.h says.

namespace service_streamer::bindings {

struct WaitObject;

// The Python type HubWaits: the greenlets of one hub that wait for requests. Used by the thread of the hub.
struct HubWaitsObject {
  PyObject_HEAD
  PyObject* hub;
  PyObject* mailbox;      // gets the WaitObject of each request that has ended
  PyObject* watcher;      // calls mailbox.resume(); keeps the loop alive only while a greenlet waits
  PyObject* get_hub;      // gevent's get_hub_if_exists
  PyObject* get_current;  // greenlet.getcurrent
  WaitObject* first;      // borrowed, the latest first
};

// The Python type Wait: one greenlet in wait_in_greenlet(), and the token that is posted to end that.
struct WaitObject {
  PyObject_HEAD
  PyObject* greenlet;  // nullptr: it does not wait any more
  HubWaitsObject* waits;
  WaitObject* previous;
  WaitObject* next;
};

inline WaitObject* wait_of(PyObject* self) {
  return reinterpret_cast<WaitObject*>(self);
}

inline HubWaitsObject* waits_of(PyObject* self) {
  return reinterpret_cast<HubWaitsObject*>(self);
}

extern PyTypeObject* wait_type;

// A greenlet waits from enter() to leave(). enter() returns false with an exception set.
bool enter(HubWaitsObject* waits, WaitObject* wait, PyObject* greenlet);
void leave(WaitObject* wait);

// Calls `object.switch()`, of a greenlet or a hub.
PyObject* switch_to(PyObject* object);

// The method Wait.switch(), to be called in the hub: switches to the greenlet, if it still waits.
PyObject* wait_switch(PyObject* self, PyObject* none);

// The HubWaits that this thread used last, borrowed; nullptr: none, or an exception is set. keep() sets it; None: none.
PyObject* waits_of_thread();
bool keep(PyObject* waits);

}  // namespace service_streamer::bindings
