#pragma once

#include <Python.h>

#include "service_streamer/waiting/waiter.h"

namespace service_streamer::bindings {

// Runs `wait(waiter)` of the core without the GIL, again after every signal whose handler did not raise. 1: done; 0: the
// deadline passed; -1: a handler raised. `wait` must own nothing that needs the GIL to be destroyed: a daemon thread may be
// ended here when the interpreter finalises.
template <typename Wait>
int wait_without_gil(Wait wait) {
  Waiter& waiter = WaiterPool::acquire();
  Completion::Wait end;
  int raised = 0;
  do {
    PyThreadState* state = PyEval_SaveThread();
    end = wait(waiter);
    PyEval_RestoreThread(state);
    if (end == Completion::Wait::kInterrupted) raised = PyErr_CheckSignals();
  } while (end == Completion::Wait::kInterrupted && raised == 0);
  WaiterPool::release(waiter);
  return raised != 0 ? -1 : static_cast<int>(end == Completion::Wait::kDone);
}

}  // namespace service_streamer::bindings
