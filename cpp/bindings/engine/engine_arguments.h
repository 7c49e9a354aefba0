#pragma once

#include <Python.h>

#include "service_streamer/batching/options.h"
#include "service_streamer/batching/tenants.h"

namespace service_streamer::bindings {

// What an engine is made of. The objects are borrowed from the arguments of the call.
struct EngineArguments {
  EngineOptions options;
  TenantShares shares;
  PyObject* future_type = nullptr;
  PyObject* start = nullptr;  // EngineObject says what the hooks are for
  PyObject* start_timer = nullptr;
  PyObject* group = Py_None;
  PyObject* ended_early = Py_None;
  PyObject* model = Py_None;  // a native one
  bool remote = false;        // worker processes run the batches
  bool inline_items = false;  // they get their items in messages only
  bool output_batch = false;
  bool copy_outputs = true;
};

// Reads the arguments of Engine(). _base/options.py checks them for users; this refuses only what would break the core.
// False with an exception set.
bool engine_arguments_from(PyObject* args, PyObject* kwargs, EngineArguments& arguments);

}  // namespace service_streamer::bindings
