#pragma once

#include <Python.h>

#include <vector>

#include "bindings/processes/received_batch.h"
#include "bindings/python/errors.h"

namespace service_streamer::bindings::worker_batch {

using ItemRange = ReceivedBatch::ItemRange;

// A batch of another process' engine, or a piece of one that was split, on its way through a worker. For Python it is
// the same as Batch. Dropped before it was completed, its requests are lost.
struct WorkerBatchObject {
  PyObject_HEAD
  ReceivedBatch* received;
  PyObject* items;                // list; a model may change the one that it gets
  std::vector<ItemRange> shares;  // empty once completed
};

inline WorkerBatchObject* self_of(PyObject* self) {
  return reinterpret_cast<WorkerBatchObject*>(self);
}

extern PyTypeObject* type;

// Takes a reference to `received` over; nullptr with an exception set.
WorkerBatchObject* make(ReceivedBatch* received);

// Raises for a batch that was completed, or that is the parent's (which will answer it): then without an exception.
inline bool is_open(WorkerBatchObject* self) {
  if (!self->received->from_this_process()) return false;
  if (!self->shares.empty()) return true;
  PyErr_SetString(PyExc_RuntimeError, "the batch was completed before");
  return false;
}

inline PyObject* none_unless_error() {
  if (PyErr_Occurred() != nullptr) return nullptr;
  Py_RETURN_NONE;
}

inline bool close(WorkerBatchObject* self) {
  self->shares.clear();
  Py_CLEAR(self->items);
  return self->received->send_when_complete();
}

// Whether `step` did it, otherwise with an exception set: it has set one, or threw.
template <typename Step>
bool run(Step step) {
  bool done = false;
  const CaughtError failure = attempt([&] { done = step(); });
  return !failure.raise() && done;
}

// Methods, for batches that raised.
PyObject* isolate(PyObject* self, PyObject* budget);
PyObject* take(PyObject* self, PyObject* isolation);
PyObject* join(PyObject* self, PyObject* group);
PyObject* postpone(PyObject* self, PyObject* none);
PyObject* drop_ended(PyObject* self, PyObject* none);

}  // namespace service_streamer::bindings::worker_batch
