// The methods of an engine for its own threads: run_batches and run_timer.

#include "bindings/batches/run_batches.h"
#include "bindings/engine/engine.h"
#include "bindings/engine/engine_batch.h"
#include "bindings/futures/engine_object.h"
#include "bindings/python/fork.h"

namespace service_streamer::bindings {
namespace {

EngineObject* self_of(PyObject* self) {
  return reinterpret_cast<EngineObject*>(self);
}

Engine::Ready wait_for_batch(EngineObject* self, CloseReason& reason) {
  Waiter& waiter = WaiterPool::acquire();
  PyThreadState* state = PyEval_SaveThread();
  const Engine::Ready ready = self->engine->wait_for_batch(waiter, reason);
  PyEval_RestoreThread(state);
  WaiterPool::release(waiter);
  return ready;
}

// The next Batch object; None when the engine is closed, or when this process is a forked child.
PyObject* next_batch(EngineObject* self) {
  for (;;) {
    if (self->fork_generation != fork_generation()) Py_RETURN_NONE;
    CloseReason reason = CloseReason::kIdle;
    // If a batch is due already, the GIL is not released.
    Engine::Ready ready = self->engine->poll(reason);
    if (ready == Engine::Ready::kNotYet) ready = wait_for_batch(self, reason);
    if (ready == Engine::Ready::kClosed) Py_RETURN_NONE;
    if (ready == Engine::Ready::kInterrupted) {
      if (PyErr_CheckSignals() < 0) return nullptr;
      continue;
    }
    auto* batch = new EngineBatch(self);
    PyObject* object = make_batch(batch);
    if (object == nullptr) {
      self->engine->decline();
      return nullptr;
    }
    // The batch is cut only now, with the GIL held again: requests that came meanwhile are in it.
    if (batch->cut(reason)) return object;
    Py_DECREF(object);
    if (PyErr_Occurred() != nullptr) return nullptr;
  }
}

}  // namespace

PyObject* engine_run_batches(PyObject* object, PyObject* args) {
  EngineObject* self = self_of(object);
  PyObject *predict, *logged;
  if (!PyArg_ParseTuple(args, "OO:run_batches", &predict, &logged)) return nullptr;
  if (const char* workers = self->backend->workers()) {
    return PyErr_Format(PyExc_RuntimeError, "the workers of this engine are %s", workers);
  }
  if (served_engine() != self) use_exact_timers();  // a worker waits for short times
  set_served_engine(self);
  PyObject* left = run_batches([self] { return next_batch(self); }, predict, logged);
  if (left == nullptr || left == Py_None) set_served_engine(nullptr);
  return left;
}

PyObject* engine_run_timer(PyObject* object, PyObject*) {
  EngineObject* self = self_of(object);
  if (self->backend->watches_deadlines()) {
    PyErr_SetString(PyExc_RuntimeError, "the deadlines of this engine are watched by its Server or ClientLink");
    return nullptr;
  }
  for (;;) {
    if (self->fork_generation != fork_generation()) Py_RETURN_NONE;
    Waiter& waiter = WaiterPool::acquire();
    PyThreadState* state = PyEval_SaveThread();
    const Engine::Ready ready = self->engine->wait_for_deadline(waiter);
    PyEval_RestoreThread(state);
    WaiterPool::release(waiter);
    if (ready == Engine::Ready::kClosed) Py_RETURN_NONE;
    if (PyErr_CheckSignals() < 0) {
      if (self->fork_generation == fork_generation()) self->engine->leave_deadlines();
      return nullptr;
    }
    EndedRequests expired;
    self->engine->expire(expired);
    self->backend->publish(expired);
  }
}

}  // namespace service_streamer::bindings
