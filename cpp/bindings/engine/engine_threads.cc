// The methods of an engine for its own threads: run_batches, next_batch and run_timer.

#include <algorithm>
#include <utility>

#include "bindings/batches/run_batches.h"
#include "bindings/engine/engine.h"
#include "bindings/engine/engine_batch.h"
#include "bindings/futures/engine_object.h"
#include "bindings/python/arguments.h"
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

// Cuts the batch that is reserved for this thread: a new Batch object. Py_None: nothing is left. nullptr with an
// exception set.
PyObject* cut_batch(EngineObject* self, CloseReason reason) {
  auto* batch = new EngineBatch(self);
  PyObject* object = make_batch(batch);
  if (object == nullptr) {
    self->engine->decline();
    return nullptr;
  }
  // The batch is cut only now, with the GIL held again: requests that came meanwhile are in it.
  if (batch->cut(reason)) return object;
  Py_DECREF(object);
  return PyErr_Occurred() == nullptr ? Py_NewRef(Py_None) : nullptr;
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
    PyObject* batch = cut_batch(self, reason);
    if (batch != Py_None) return batch;
    Py_DECREF(batch);
  }
}

// Blocks without the GIL until a batch is due, the deadline passes, or another thread rings (kNotYet). With `to_end`
// also until the engine is closed and empty.
Engine::Ready wait_or_ring(EngineObject* self, TimePoint deadline, bool to_end, CloseReason& reason) {
  Waiter& waiter = WaiterPool::acquire();
  self->taker = &waiter;
  PyThreadState* state = PyEval_SaveThread();
  Engine::IdleWorker idle(waiter);
  TimePoint until;
  Parker::Wake wake = Parker::Wake::kUnparked;
  const auto ask = [&] {
    const Engine::Ready answer = self->engine->start_waiting(idle, reason, until);
    if (answer != Engine::Ready::kClosed || to_end) return answer;
    until = TimePoint::max();
    return Engine::Ready::kNotYet;
  };
  Engine::Ready ready = ask();
  if (ready == Engine::Ready::kNotYet) {
    wake = waiter.parker.park(std::min(until, deadline));
    ready = ask();
    if (ready == Engine::Ready::kNotYet) self->engine->stop_waiting(idle);
  }
  PyEval_RestoreThread(state);
  self->taker = nullptr;
  WaiterPool::release(waiter);
  const bool interrupted = ready == Engine::Ready::kNotYet && wake == Parker::Wake::kInterrupted;
  return interrupted ? Engine::Ready::kInterrupted : ready;
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

PyObject* engine_next_batch(PyObject* object, PyObject* timeout) {
  EngineObject* self = self_of(object);
  TimePoint deadline;
  if (!deadline_from(timeout, deadline)) return nullptr;
  set_served_engine(self);
  for (;;) {
    if (self->fork_generation != fork_generation()) Py_RETURN_FALSE;
    CloseReason reason = CloseReason::kIdle;
    Engine::Ready ready = self->engine->poll(reason);
    if (ready != Engine::Ready::kBatch) {
      if (std::exchange(self->rung, false) || deadline <= Clock::now()) Py_RETURN_NONE;
      ready = wait_or_ring(self, deadline, timeout == Py_None, reason);
    }
    if (ready == Engine::Ready::kClosed) {
      set_served_engine(nullptr);
      Py_RETURN_FALSE;
    }
    if (ready == Engine::Ready::kNotYet) {
      self->rung = false;
      Py_RETURN_NONE;
    }
    if (ready == Engine::Ready::kInterrupted) {
      if (PyErr_CheckSignals() < 0) return nullptr;
      continue;
    }
    PyObject* batch = cut_batch(self, reason);
    if (batch != Py_None) return batch;
    Py_DECREF(batch);
  }
}

PyObject* engine_ring(PyObject* object, PyObject*) {
  EngineObject* self = self_of(object);
  self->rung = true;
  if (self->taker != nullptr && self->fork_generation == fork_generation()) self->taker->parker.unpark();
  Py_RETURN_NONE;
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
