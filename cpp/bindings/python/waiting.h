#pragma once

#include <Python.h>

#include "service_streamer/waiting/waiter.h"

namespace service_streamer::bindings {

// Runs `wait(waiter)` of the core without the GIL, again after every signal whose handler did not raise. 1: done; 0:
// the deadline passed; -1: a handler raised. `begin(waiter)` is called before each wait, with the GIL. A daemon thread
// may be ended here when the interpreter finalises, so `wait` must own nothing whose destructor needs the GIL.
template <typename Wait, typename Begin>
int wait_without_gil(Wait wait, Begin begin) {
  Waiter& waiter = WaiterPool::acquire();
  Completion::Wait end;
  int raised = 0;
  do {
    begin(waiter);
    PyThreadState* state = PyEval_SaveThread();
    end = wait(waiter);
    PyEval_RestoreThread(state);
    if (end == Completion::Wait::kInterrupted) raised = PyErr_CheckSignals();
  } while (end == Completion::Wait::kInterrupted && raised == 0);
  WaiterPool::release(waiter);
  return raised != 0 ? -1 : static_cast<int>(end == Completion::Wait::kDone);
}

template <typename Wait>
int wait_without_gil(Wait wait) {
  return wait_without_gil(wait, [](Waiter&) {});
}

}  // namespace service_streamer::bindings
