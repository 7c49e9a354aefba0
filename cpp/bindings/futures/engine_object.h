#pragma once

#include <Python.h>

#include <atomic>
#include <cstdint>

#include "bindings/futures/backend.h"
#include "service_streamer/batching/engine.h"

namespace service_streamer::bindings {

class EngineBatch;

// A pointer that is changed while other threads use it. What it pointed to stays valid.
class CurrentBackend {
 public:
  CurrentBackend& operator=(Backend* backend) {
    backend_.store(backend, std::memory_order_release);
    return *this;
  }
  operator Backend*() const { return backend_.load(std::memory_order_acquire); }
  Backend* operator->() const { return *this; }

 private:
  std::atomic<Backend*> backend_;
};

// The Python type Engine: an engine of the core, its back end, and the arguments from Python. engine/ has its methods.
// A Locked of the object guards `next_request`, `retired` and the list of batches, with the ranges in them.
struct EngineObject {
  PyObject_HEAD
  Engine* engine;
  Backend* own_backend;    // made with the engine, deleted with it
  CurrentBackend backend;  // its own, or that of the Server, ClientLink or BrokerEgress that is attached
  Backend* retired;        // those that were attached, if they are kept as long as the engine; a list
  PyObject* future_type;
  PyObject* start;        // hook, called by the first submit: starts the workers
  PyObject* start_timer;  // hook, called by the first request that needs run_timer(): for its deadline, or the target
  PyObject* group;        // hook, called with the items of each request: returns them, and traits; or nullptr
  PyObject* ended_early;  // hook, called after requests have ended of which a Python worker has items; or nullptr
  std::atomic<PyObject*> next_request;  // a list of functions that the next submit calls once; nullptr: none
  std::uint32_t fork_generation;
  std::atomic<bool> rung;  // ring() was called since next_batch() returned None
  EngineBatch* batches;    // the newest that exists; they are a list
  std::atomic<bool> started;
  std::atomic<bool> timer_started;
  std::atomic<bool> answered;  // a request has ended, and its caller has seen that
  std::atomic<bool> looked;    // the log says why the first request has no answer
  bool output_batch;           // callers get slices of the model's array, not lists
  bool copy_outputs;           // callers get copies of arrays that the model keeps
  bool weighs;  // there is a limit of the weight, which holds for all batches of a thread in next_batch()
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
