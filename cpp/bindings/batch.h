#pragma once

#include <Python.h>

#include "bindings/engine.h"

namespace service_streamer::bindings {

bool make_batch_type(PyObject* module);

// The next batch of the engine, whose turn this worker has (Engine::Ready::kBatch); None: nothing was left.
PyObject* cut_batch(EngineObject* engine, CloseReason reason);

}  // namespace service_streamer::bindings
