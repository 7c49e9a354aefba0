#pragma once

#include <Python.h>

#include "service_streamer/batching/engine.h"

namespace service_streamer::bindings {

// Engine.stats(): a new dict.
PyObject* stats_dict(const Engine& engine);

}  // namespace service_streamer::bindings
