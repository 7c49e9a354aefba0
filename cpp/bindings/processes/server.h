#pragma once

#include <Python.h>

#include "bindings/processes/process_backend.h"
#include "service_streamer/server/server.h"

namespace service_streamer::bindings {

// The back end of an engine that is served here, by worker processes of its own.
class ServerBackend final : public ProcessBackend {
 public:
  ServerBackend(Engine& engine, const ipc::ServerOptions& options, bool inline_items)
      : ProcessBackend(inline_items), server(engine, options) {}

  void submitted(Request& request) override { server.check_failure(request); }
  bool watches_deadlines() const override { return true; }

  ipc::Server server;
};

struct ServerObject {
  PyObject_HEAD
  EngineObject* engine;
  ServerBackend* backend;
};

extern PyTypeObject* server_type;
bool make_server_type(PyObject* module);

}  // namespace service_streamer::bindings
