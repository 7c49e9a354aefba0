#include <Python.h>

#include "bindings/batch.h"
#include "bindings/engine.h"
#include "bindings/future.h"

// What the threads of an engine meet: next_batch and run_timer.

namespace service_streamer::bindings {
namespace {

EngineObject* self_of(PyObject* self) {
  return reinterpret_cast<EngineObject*>(self);
}

// The engine whose batches this thread takes.
thread_local const EngineObject* served = nullptr;

// Without a batch: nullptr with an exception set, or None when the engine is closed or the parent's.
PyObject* no_batch(PyObject* batch, bool error) {
  Py_DECREF(batch);
  if (error) return nullptr;
  served = nullptr;
  Py_RETURN_NONE;
}

// The batches of a remote engine are its Server's, its Relay's or its Outlet's.
bool refuse_remote(const EngineObject* self) {
  if (self->remote) PyErr_SetString(PyExc_RuntimeError, "the workers of this engine are processes");
  return self->remote;
}

// A Server and a Relay watch the deadlines themselves. An Outlet may not, and the timer may be there first.
bool refuse_watched(const EngineObject* self) {
  const bool watched = self->server != nullptr || self->relay != nullptr;
  if (watched) PyErr_SetString(PyExc_RuntimeError, "the deadlines of this engine are watched by who serves it");
  return watched;
}

// Those of a native model are its NativeWorkers'.
bool refuse_native(const EngineObject* self) {
  if (self->native != nullptr) PyErr_SetString(PyExc_RuntimeError, "the workers of this engine are native threads");
  return self->native != nullptr;
}

}  // namespace

PyObject* engine_next_batch(PyObject* object, PyObject*) {
  EngineObject* self = self_of(object);
  if (refuse_remote(self) || refuse_native(self)) return nullptr;
  PyObject* batch = make_batch(self);
  if (batch == nullptr) return nullptr;
  if (served != self) wake_in_time();  // it lingers
  served = self;
  for (;;) {
    if (self->fork_generation != fork_generation()) return no_batch(batch, false);
    CloseReason reason = CloseReason::kIdle;
    Engine::Ready ready = self->engine->poll(reason);  // while the next batch is due the GIL need not be given away
    if (ready == Engine::Ready::kNotYet) {
      Waiter& waiter = WaiterPool::acquire();
      PyThreadState* state = PyEval_SaveThread();
      self->serving.store(false, std::memory_order_release);
      ready = self->engine->wait_for_batch(waiter, reason);
      self->serving.store(true, std::memory_order_relaxed);
      PyEval_RestoreThread(state);
      WaiterPool::release(waiter);
    }
    if (ready == Engine::Ready::kClosed) return no_batch(batch, false);
    if (ready == Engine::Ready::kInterrupted) {
      if (PyErr_CheckSignals() < 0) return no_batch(batch, true);
      continue;
    }
    // Only now that the GIL is held again is the batch cut: it grew until this moment.
    const Cut cut = cut_batch(batch, reason);
    if (cut == Cut::kBatch) return batch;
    if (cut == Cut::kError) return no_batch(batch, true);
  }
}

PyObject* engine_run_timer(PyObject* object, PyObject*) {
  EngineObject* self = self_of(object);
  if (refuse_watched(self)) return nullptr;
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
    publish(self, expired);
  }
}

bool is_worker_of(const EngineObject* engine) {
  return served == engine;
}

}  // namespace service_streamer::bindings
