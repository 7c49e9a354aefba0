// The methods of an engine for its own threads: run_batches and run_timer.

#include "bindings/batches/run_batches.h"
#include "bindings/engine/batch.h"
#include "bindings/engine/engine.h"
#include "bindings/futures/engine_object.h"
#include "bindings/python/fork.h"

namespace service_streamer::bindings {
namespace {

EngineObject* self_of(PyObject* self) {
  return reinterpret_cast<EngineObject*>(self);
}

// The source of batches for run_batches().
class EngineBatches {
 public:
  explicit EngineBatches(EngineObject* engine) : engine_(engine) {}

  // None when the engine is closed, or when this process is a forked child.
  PyObject* next() {
    for (;;) {
      if (engine_->fork_generation != fork_generation()) Py_RETURN_NONE;
      CloseReason reason = CloseReason::kIdle;
      // If a batch is due already, the GIL is not released.
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
      // The batch is cut only now, with the GIL held again: requests that came meanwhile are in it.
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
  if (const char* workers = self->backend->workers()) {
    return PyErr_Format(PyExc_RuntimeError, "the workers of this engine are %s", workers);
  }
  if (served_engine() != self) wake_in_time();  // a worker waits for short times
  set_served_engine(self);
  EngineBatches batches(self);
  PyObject* left = run_batches(batches, predict, logged);
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
