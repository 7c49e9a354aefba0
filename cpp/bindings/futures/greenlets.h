#pragma once

#include <Python.h>

#include "bindings/futures/future.h"

// Waiting without stalling a gevent hub: the greenlet switches to its hub, and the hub, which watches a Mailbox, back.
//
// Plain C functions, for a greenlet may stay switched out here for ever, and its stack is moved about meanwhile: nothing on
// it may be pointed to, or need to be destroyed.

namespace service_streamer::bindings {

bool make_greenlet_types(PyObject* module);

// Lets other greenlets of this thread run until the request has ended or `seconds` (a float, or None) are over; may return
// before. 1: waited; 0: this thread has no hub to switch to; -1: an exception, of gevent.Timeout or a greenlet that is killed.
int wait_in_greenlet(FutureObject* future, PyObject* seconds);

// Switches to the greenlet whose wait `token` is, if it still waits. What it raises goes to its hub.
void resume(PyObject* token);

}  // namespace service_streamer::bindings
