#pragma once

#include <Python.h>

#include "bindings/batches/batch.h"
#include "bindings/python/errors.h"

namespace service_streamer::bindings {

// The loop of a worker thread: runs the model on batch after batch and answers them. `next(later)` returns a new Batch,
// or None when there are no more, or nullptr with an exception set. Before this thread waits or runs other code, next()
// calls later.wake().
//
// What is rare is left to service_streamer._threads.worker: the loop returns (batch, raised, refused), with what the
// model raised, or why its outputs were refused. With neither, the batch has not run: logged() is true, or a request
// has a trace context. The loop is in C++ so that no Python frame runs between the model and the caller that waits for
// the answer.
template <typename Next>
PyObject* run_batches(Next next, PyObject* predict, PyObject* logged) {
  DeferredWake later;
  for (;;) {
    PyObject* batch = next(later);
    if (batch == nullptr || batch == Py_None) return batch;
    // If the model is C code, this call of a Python function is where signals are handled and other threads get the
    // GIL.
    PyObject* yes = PyObject_CallNoArgs(logged);
    const int to_be_logged = yes != nullptr ? PyObject_IsTrue(yes) : -1;
    Py_XDECREF(yes);
    if (to_be_logged > 0 || (to_be_logged == 0 && is_traced(batch)))
      return Py_BuildValue("(NOO)", batch, Py_None, Py_None);
    if (to_be_logged < 0) {
      Py_DECREF(batch);
      return nullptr;
    }

    PyObject* outputs = run_batch(batch, predict);
    if (outputs == nullptr) return Py_BuildValue("(NNO)", batch, take_exception(true), Py_None);
    const bool completed = complete_batch(batch, outputs, &later);
    later.before_dropping(outputs);
    Py_DECREF(outputs);
    if (!completed) return Py_BuildValue("(NON)", batch, Py_None, take_exception(true));
    Py_DECREF(batch);
  }
}

}  // namespace service_streamer::bindings
