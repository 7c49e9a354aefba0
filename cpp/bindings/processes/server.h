#pragma once

#include <Python.h>

#include "bindings/processes/process_backend.h"
#include "service_streamer/server/server.h"

namespace service_streamer::bindings {

// The back end of an engine that is served here, by worker processes of its own.
class ServerBackend final : public ProcessBackend {
 public:
  ServerBackend(PyObject* object, Engine& engine, const ipc::ServerOptions& options, bool inline_items)
      : ProcessBackend(inline_items), server(engine, options), object_(object) {}

  void submitted(Request& request) override { server.check_failure(request); }
  int wait(FutureObject* future, TimePoint deadline, const WorkerWake& worker) override;
  bool wakes_worker_late() const override { return true; }
  bool watches_deadlines() const override { return true; }
  void retire() override { server.stop(); }

  ipc::Server server;

 private:
  PyObject* const object_;  // borrowed: it owns this back end
};

struct ServerObject {
  PyObject_HEAD
  EngineObject* engine;
  ServerBackend* backend;
};

extern PyTypeObject* server_type;
bool make_server_type(PyObject* module);

}  // namespace service_streamer::bindings
