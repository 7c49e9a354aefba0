#pragma once

#include <Python.h>

#include "bindings/future.h"
#include "service_streamer/batching/batch.h"

namespace service_streamer::bindings {

// Cuts what predict_function returned into the parts of the batch, each left with its future. As items: lists of single
// outputs; as batch: slices of the same array, tensor or list. A part with an exception among its outputs is marked failed
// and gets that. False, with an exception set and nothing changed: the outputs do not fit.
bool distribute(PyObject* outputs, Batch& batch, bool as_batch);

// Makes the value of a future whose outputs are all there.
void finish_value(FutureObject* future, bool as_batch);

}  // namespace service_streamer::bindings
