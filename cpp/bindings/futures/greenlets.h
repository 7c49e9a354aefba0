#pragma once

#include <Python.h>

#include "bindings/futures/future.h"

// Waiting without blocking a gevent hub: the greenlet switches to its hub. The hub watches a Mailbox, and switches
// back.
//
// These are plain C functions. A greenlet may stay switched out for ever, and its stack is moved while it waits:
// nothing may point into that stack, and nothing on it may need a destructor.

namespace service_streamer::bindings {

bool make_greenlet_types(PyObject* module);

// Lets other greenlets of this thread run until the request has ended or `seconds` (a float, or None) have passed; may
// return early. 1: waited; 0: this thread has no hub to switch to; -1 with an exception set: gevent.Timeout, or the
// greenlet was killed.
int wait_in_greenlet(FutureObject* future, PyObject* seconds);

// Switches to the greenlet of a Wait object, if it still waits. An exception is passed to its hub.
void resume(PyObject* token);

}  // namespace service_streamer::bindings
