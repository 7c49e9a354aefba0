#pragma once

#include <Python.h>

#include "bindings/futures/future.h"

// Who is told of a request's end besides the threads that sleep until then: done callbacks, concurrent.futures.wait, event
// loops. Where the request's worker is a thread of this process the one who ends it does that. The end of a call to worker
// processes is published by threads without the GIL: there a thread of this process, made when it is first needed, follows.

namespace service_streamer::bindings {

bool make_callback_functions(PyObject* module);

enum class Added { kYes, kTooLate, kError };

// Has `callback` called (or a tuple (mailbox, token) posted) when the request has ended.
Added add_callback(FutureObject* future, PyObject* callback);

// Mails the token when the request ends. False: it has ended, or with an exception set no memory is left.
bool attach(FutureObject* future, PyObject* mailbox, PyObject* token);

// The condition that concurrent.futures.wait wants, made the first time: a new reference, or nullptr.
PyObject* condition_of(FutureObject* future);

// What may run Python code once everybody is awake: the waiters of the condition, then the callbacks.
void follow_up(FutureObject* future);

}  // namespace service_streamer::bindings
