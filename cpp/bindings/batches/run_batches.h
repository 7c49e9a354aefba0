#pragma once

#include <Python.h>

#include "bindings/python/errors.h"

namespace service_streamer::bindings {

// The loop of a worker: runs the model on batch after batch of `source` and answers them. What is rare is left to
// service_streamer._worker: a batch comes back, as (batch, raised, refused), with what the model raised, with why its outputs
// were refused, or with neither: `logged`() is true, so it is to be run there. None: there are no more.
//
// That the loop is here spares a lone caller the frames of Python between the model and him: after a model of a few
// milliseconds everything that runs is read from memory again.
template <typename Source>
PyObject* run_batches(Source& source, PyObject* predict, PyObject* logged) {
  for (;;) {
    PyObject* batch = source.next();
    if (batch == nullptr || batch == Py_None) return batch;
    // Python code: if the model is C, it is here that signals are handled and others get the GIL.
    PyObject* yes = PyObject_CallNoArgs(logged);
    const int to_be_logged = yes != nullptr ? PyObject_IsTrue(yes) : -1;
    Py_XDECREF(yes);
    if (to_be_logged > 0) return Py_BuildValue("(NOO)", batch, Py_None, Py_None);
    if (to_be_logged < 0) {
      Py_DECREF(batch);
      return nullptr;
    }

    PyObject* items = source.items(batch);
    PyObject* outputs = items != nullptr ? PyObject_CallOneArg(predict, items) : nullptr;
    Py_XDECREF(items);
    if (outputs == nullptr) return Py_BuildValue("(NNO)", batch, take_exception(true), Py_None);
    if (!source.complete(batch, outputs)) return Py_BuildValue("(NON)", batch, Py_None, take_exception(true));
    Py_DECREF(batch);
  }
}

}  // namespace service_streamer::bindings
