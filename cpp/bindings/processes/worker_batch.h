#pragma once

#include <Python.h>

#include "bindings/processes/received_batch.h"

namespace service_streamer::bindings {

bool make_worker_batch_type(PyObject* module);

// The batch for Python, with its items unpickled. Requests with an item that cannot be are answered with that: None if none is
// left. nullptr with an exception set: all are answered. Takes `received` over.
PyObject* unpack(ReceivedBatch* received);

// Its attribute `items` and its method `complete`, for the loop of a worker. The latter takes the reference to `outputs` over.
PyObject* items_of_worker_batch(PyObject* batch);
bool complete_worker_batch(PyObject* batch, PyObject* outputs);

}  // namespace service_streamer::bindings
