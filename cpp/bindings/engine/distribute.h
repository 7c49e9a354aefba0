#pragma once

#include <Python.h>

#include "bindings/futures/future.h"
#include "service_streamer/batching/batch.h"

namespace service_streamer::bindings {

// Stores what predict_function returned in the futures that have a range in the batch. As items: in the result lists of
// their callers. As batch: as slices of the same array, tensor or list. A range with an exception among its outputs is
// marked as failed and gets that exception. False with an exception set and nothing changed: the number or the type of
// the outputs is wrong.
bool distribute(PyObject* outputs, Batch& batch, bool as_batch);

// Sets the outputs of a future, an error for example. Several threads may do that, each with a batch of its own.
void set_outputs(FutureObject* future, PyObject* outputs);

// Makes the value of a future that has all its outputs.
void finish_value(FutureObject* future, bool as_batch);

}  // namespace service_streamer::bindings
