#pragma once

#include <Python.h>

#include "bindings/futures/future.h"

namespace service_streamer::bindings {

bool make_relay_type(PyObject* module);

// For futures whose request this process has handed on: asks the engine's process. Blocks without the GIL, a few seconds at most.
// 1: yes; 0: no, or no answer; -1: a signal handler's exception.
int ask_cancel(FutureObject* future);
int ask_running(FutureObject* future);

}  // namespace service_streamer::bindings
