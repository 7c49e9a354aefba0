#pragma once

#include <Python.h>

#include "bindings/futures/future.h"

// What follows the end of a request, besides the wake-up of waiting threads: done callbacks, concurrent.futures.wait(),
// event loops. With Python threads as workers, the thread that ends the request calls them. A Call is published by
// threads without the GIL, so there the callbacks thread follows; it is started when it is first needed. All functions
// need the GIL.

namespace service_streamer::bindings {

bool make_callback_functions(PyObject* module);

enum class Added { kYes, kTooLate, kError };

// Adds a function to be called when the request ends.
Added add_callback(FutureObject* future, PyObject* callback);

// Has the token posted to the mailbox when the request ends. False: it has ended, or an exception is set.
bool attach(FutureObject* future, PyObject* mailbox, PyObject* token);

// The condition for concurrent.futures.wait(), made by the first call: a new reference; nullptr with an exception set.
PyObject* condition_of(FutureObject* future);

// Notifies the condition and runs the callbacks of a request that has ended, after waiting threads were woken. Runs
// Python code.
void follow_up(FutureObject* future);

}  // namespace service_streamer::bindings
