#pragma once

#include <Python.h>

#include "bindings/futures/engine_object.h"

namespace service_streamer::bindings {

bool make_batch_type(PyObject* module);

// An empty batch object, a new reference; nullptr with an exception set.
PyObject* make_batch(EngineObject* engine);

// Fills one made by make_batch() with what waits, for a worker whose turn it is (Engine::Ready::kBatch).
enum class Cut { kBatch, kNothing, kError };
Cut cut_batch(PyObject* batch, CloseReason reason);

// Its attribute `items` and its method `complete`, for the loop of a worker. The latter takes the reference to `outputs` over.
PyObject* items_of_batch(PyObject* batch);
bool complete_batch(PyObject* batch, PyObject* outputs);

}  // namespace service_streamer::bindings
