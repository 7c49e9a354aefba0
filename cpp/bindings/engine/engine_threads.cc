#include <Python.h>

#include "bindings/engine/batch.h"
#include "bindings/engine/engine.h"
#include "bindings/engine/run_batches.h"
#include "bindings/futures/future.h"

// What the threads of an engine meet: run_batches and run_timer.

namespace service_streamer::bindings {
namespace {

EngineObject* self_of(PyObject* self) {
  return reinterpret_cast<EngineObject*>(self);
}

// The engine whose batches this thread takes.
thread_local const EngineObject* served = nullptr;

// The batches of a remote engine are its Server's, its ClientLink's or its BrokerEgress's.
bool refuse_remote(const EngineObject* self) {
  if (self->remote) PyErr_SetString(PyExc_RuntimeError, "the workers of this engine are processes");
  return self->remote;
}

// A Server and a ClientLink watch the deadlines themselves. An BrokerEgress may not, and the timer may be there first.
bool refuse_watched(const EngineObject* self) {
  const bool watched = self->server != nullptr || self->client_link != nullptr;
  if (watched) PyErr_SetString(PyExc_RuntimeError, "the deadlines of this engine are watched by who serves it");
  return watched;
}

// Those of a native model are its NativeWorkers'.
bool refuse_native(const EngineObject* self) {
  if (self->native != nullptr) PyErr_SetString(PyExc_RuntimeError, "the workers of this engine are native threads");
  return self->native != nullptr;
}

// What run_batches() asks of an engine.
class EngineBatches {
 public:
  explicit EngineBatches(EngineObject* engine) : engine_(engine) {}

  // None when the engine is closed, or the parent's.
  PyObject* next() {
    for (;;) {
      if (engine_->fork_generation != fork_generation()) Py_RETURN_NONE;
      CloseReason reason = CloseReason::kIdle;
      // While the next batch is due the GIL need not be given away.
      Engine::Ready ready = engine_->engine->poll(reason);
      if (ready == Engine::Ready::kNotYet) ready = wait(reason);
      if (ready == Engine::Ready::kClosed) Py_RETURN_NONE;
      if (ready == Engine::Ready::kInterrupted) {
        if (PyErr_CheckSignals() < 0) return nullptr;
        continue;
      }
      PyObject* batch = make_batch(engine_);
      if (batch == nullptr) {
        engine_->engine->decline();
        return nullptr;
      }
      // Only now that the GIL is held again is the batch cut: it grew until this moment.
      const Cut cut = cut_batch(batch, reason);
      if (cut == Cut::kBatch) return batch;
      Py_DECREF(batch);
      if (cut == Cut::kError) return nullptr;
    }
  }

  static PyObject* items(PyObject* batch) { return items_of_batch(batch); }
  static bool complete(PyObject* batch, PyObject* outputs) { return complete_batch(batch, outputs); }

 private:
  Engine::Ready wait(CloseReason& reason) {
    Waiter& waiter = WaiterPool::acquire();
    PyThreadState* state = PyEval_SaveThread();
    const Engine::Ready ready = engine_->engine->wait_for_batch(waiter, reason);
    PyEval_RestoreThread(state);
    WaiterPool::release(waiter);
    return ready;
  }

  EngineObject* engine_;
};

}  // namespace

PyObject* engine_run_batches(PyObject* object, PyObject* args) {
  EngineObject* self = self_of(object);
  PyObject *predict, *logged;
  if (!PyArg_ParseTuple(args, "OO:run_batches", &predict, &logged)) return nullptr;
  if (refuse_remote(self) || refuse_native(self)) return nullptr;
  if (served != self) use_exact_timers();  // it lingers
  served = self;
  EngineBatches batches(self);
  PyObject* left = run_batches(batches, predict, logged);
  if (left == nullptr || left == Py_None) served = nullptr;
  return left;
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
