#pragma once

#include <Python.h>

#include <atomic>
#include <cstdint>

#include "service_streamer/batching/engine.h"

namespace service_streamer::bindings {

// An engine of the core together with what Python gave it.
struct EngineObject {
  PyObject_HEAD
  Engine* engine;
  PyObject* future_type;
  PyObject* start;             // called by the first submit: starts the workers
  PyObject* start_timer;       // called by the first request with a deadline that nobody watches
  PyObject* cooperative_wait;  // called instead of sleeping where gevent is loaded
  std::uint32_t fork_generation;
  bool started;
  bool timer_started;
  std::atomic<bool> serving;  // a worker has, or is about to ask for, the GIL
  bool output_batch;          // callers get slices of the model's array, not lists
};

bool make_engine_type(PyObject* module);

// A forked child has a copy of the parent's engine, whose mutex may be held by a thread that it does not have: false, with
// StreamerClosed raised.
bool from_this_process(EngineObject* engine);

// Whether the calling thread takes this engine's batches.
bool is_worker_of(const EngineObject* engine);

// Methods of the engine (METH_FASTCALL): batch, timeout, priority.
PyObject* engine_predict(PyObject* self, PyObject* const* args, Py_ssize_t nargs);
PyObject* engine_submit(PyObject* self, PyObject* const* args, Py_ssize_t nargs);
PyObject* engine_submit_async(PyObject* self, PyObject* const* args, Py_ssize_t nargs);

}  // namespace service_streamer::bindings
