#pragma once

#include <Python.h>

#include "bindings/engine/engine.h"

namespace service_streamer::bindings {

struct ServerObject {
  PyObject_HEAD
  EngineObject* engine;
  ipc::Server* server;
};

extern PyTypeObject* server_type;
bool make_server_type(PyObject* module);

}  // namespace service_streamer::bindings
