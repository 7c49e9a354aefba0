#pragma once

#include <Python.h>

#include "bindings/futures/future.h"

namespace service_streamer::bindings {

bool make_client_link_type(PyObject* module);

// For futures whose request this process has handed on: asks the engine's process. Blocks without the GIL, a few seconds at most.
// 1: yes; 0: no, or no answer; -1: a signal handler's exception.
int query_cancel(FutureObject* future);
int query_running(FutureObject* future);

// ": " and why the engine's process is away, or an empty str; nullptr with an exception set.
PyObject* absence_of(const EngineObject* engine);

}  // namespace service_streamer::bindings
