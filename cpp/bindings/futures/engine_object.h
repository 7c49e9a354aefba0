#pragma once

#include <Python.h>

#include <atomic>
#include <cstdint>

#include "bindings/futures/backend.h"
#include "service_streamer/batching/engine.h"

namespace service_streamer::bindings {

class EngineBatch;

// The Python type Engine: an engine of the core, its back end, and the arguments from Python. engine/ has its methods.
struct EngineObject {
  PyObject_HEAD
  Engine* engine;
  Backend* own_backend;  // made with the engine, deleted with it
  Backend* backend;      // in use: its own, or that of the Server, ClientLink or BrokerEgress that is attached
  PyObject* future_type;
  PyObject* start;         // hook, called by the first submit: starts the workers
  PyObject* start_timer;   // hook, called by the first request that needs run_timer(): for its deadline, or the target
  PyObject* group;         // hook, called with the items of each request: returns them, and traits; or nullptr
  PyObject* ended_early;   // hook, called after requests have ended of which a Python worker has items; or nullptr
  PyObject* next_request;  // a list of functions that the next submit calls once; nullptr: none
  std::uint32_t fork_generation;
  std::atomic<bool> rung;  // ring() was called since next_batch() returned None
  EngineBatch* batches;    // the newest that exists; they are a list
  bool started;
  bool timer_started;
  bool output_batch;  // callers get slices of the model's array, not lists
  bool copy_outputs;  // callers get copies of arrays that the model keeps
  bool answered;      // a request has ended, and its caller has seen that
  bool looked;        // the log says why the first request has no answer
  bool weighs;        // there is a limit of the weight, which holds for all batches of a thread in next_batch()
};

// Set by make_engine_type() when the module is initialised.
extern PyTypeObject* engine_type;

// False with StreamerClosed raised: a forked child has a copy of the parent's engine. A thread that the child does not
// have may hold its mutex.
bool from_this_process(EngineObject* engine);

// The engine whose batches the calling thread takes; nullptr: none.
const EngineObject* served_engine();
void set_served_engine(const EngineObject* engine);

}  // namespace service_streamer::bindings
