#pragma once

#include <Python.h>

#include <cstdint>

#include "service_streamer/batching/engine.h"

namespace service_streamer::ipc {
class BrokerEgress;
class ClientLink;
class Server;
}  // namespace service_streamer::ipc

namespace service_streamer::bindings {

class NativeModel;

// An engine of the core together with what Python gave it.
struct EngineObject {
  PyObject_HEAD
  Engine* engine;
  PyObject* future_type;
  PyObject* start;        // called by the first submit: starts the workers
  PyObject* start_timer;  // called by the first request with a deadline that nobody watches
  std::uint32_t fork_generation;
  bool started;
  bool timer_started;
  bool output_batch;    // callers get slices of the model's array, not lists
  bool remote;          // its workers are processes: requests are Calls, which a Server or a ClientLink takes
  NativeModel* native;  // its workers are threads that run this, in `model`: requests are native Calls
  bool inline_items;    // nothing of them is in shared memory: they may go to other machines
  ipc::Server* server;  // of a remote engine, as long as it is there
  ipc::ClientLink* client_link;
  ipc::BrokerEgress* egress;
  PyObject* client_link_object;  // borrowed
  PyObject* model;               // the capsule of `native`, or nullptr

  // Whether requests are BaseCalls, which threads without the GIL end.
  bool has_calls() const { return remote || native != nullptr; }
};

extern PyTypeObject* engine_type;
bool make_engine_type(PyObject* module);

// Whether it is for worker processes, and free; sets a ValueError where it is not.
bool check_remote(EngineObject* engine);

// Whether its items may go to other machines; the same.
bool check_inline(EngineObject* engine);

// A forked child has a copy of the parent's engine, whose mutex may be held by a thread that it does not have: false, with
// StreamerClosed raised.
bool from_this_process(EngineObject* engine);

// Whether the calling thread takes this engine's batches.
bool is_worker_of(const EngineObject* engine);

// Methods of the engine for its workers (METH_VARARGS: predict, logged) and its timer (METH_NOARGS).
PyObject* engine_run_batches(PyObject* self, PyObject* args);
PyObject* engine_run_timer(PyObject* self, PyObject* none);

// For its callers (METH_FASTCALL): batch, timeout, priority.
PyObject* engine_predict(PyObject* self, PyObject* const* args, Py_ssize_t nargs);
PyObject* engine_submit(PyObject* self, PyObject* const* args, Py_ssize_t nargs);
PyObject* engine_submit_async(PyObject* self, PyObject* const* args, Py_ssize_t nargs);

}  // namespace service_streamer::bindings
