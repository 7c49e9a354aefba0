#pragma once

#include <Python.h>

#include "bindings/futures/engine_object.h"
#include "bindings/futures/future.h"

namespace service_streamer::bindings::batch {

// A batch of the core on its way through a Python worker. Dropped before it was completed, its requests are lost.
struct BatchObject {
  PyObject_HEAD
  EngineObject* engine;
  PyObject* items;  // tuple; a model may change the list that it gets, and the batch may have to run again
  Batch batch;
};

inline BatchObject* self_of(PyObject* self) {
  return reinterpret_cast<BatchObject*>(self);
}

// A model that forks leaves the child a batch that its parent will answer.
inline bool from_this_process(BatchObject* self) {
  return self->engine->fork_generation == fork_generation();
}

inline bool is_open(BatchObject* self) {
  if (!self->batch.parts.empty()) return true;
  PyErr_SetString(PyExc_RuntimeError, "the batch was completed before");
  return false;
}

extern PyTypeObject* type;

// An empty one; nullptr with an exception set.
BatchObject* make(EngineObject* engine);

// Gives the batch back to the engine, and its callers the outputs that lie ready in the futures.
void end(BatchObject* self, Outcome outcome);

// Methods, for batches that raised.
PyObject* isolate(PyObject* self, PyObject* budget);
PyObject* take(PyObject* self, PyObject* isolation);
PyObject* join(PyObject* self, PyObject* group);
PyObject* postpone(PyObject* self, PyObject* none);
PyObject* drop_ended(PyObject* self, PyObject* none);

}  // namespace service_streamer::bindings::batch
