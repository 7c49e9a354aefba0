// The methods of an engine for its own threads: run_batches, next_batch and run_timer.

#include "bindings/batches/run_batches.h"
#include "bindings/engine/engine.h"
#include "bindings/engine/engine_batch.h"
#include "bindings/futures/engine_object.h"
#include "bindings/python/arguments.h"
#include "bindings/python/deferred_wake.h"
#include "bindings/python/fork.h"

namespace service_streamer::bindings {
namespace {

EngineObject* self_of(PyObject* self) {
  return reinterpret_cast<EngineObject*>(self);
}

// False with an exception set: other workers than threads of Python take the batches.
bool check_workers(EngineObject* self) {
  const char* workers = self->backend->workers();
  if (workers != nullptr) PyErr_Format(PyExc_RuntimeError, "the workers of this engine are %s", workers);
  return workers == nullptr;
}

// To be called by a thread before it takes batches. False with an exception set: it must not.
bool begin_serving(EngineObject* self) {
  if (!check_workers(self)) return false;
  if (served_engine() != self) use_exact_timers();  // a worker waits for short times
  set_served_engine(self);
  return true;
}

// Blocks without the GIL.
Engine::Ready wait_for_batch(EngineObject* self, CloseReason& reason, const WaitEnd& end, const ItemWeights& live,
                             DeferredWake& later) {
  Waiter& waiter = WaiterPool::acquire();
  PyThreadState* state = PyEval_SaveThread();
  later.wake();
  const Engine::Ready ready = self->engine->wait_for_batch(waiter, reason, end, live);
  PyEval_RestoreThread(state);
  WaiterPool::release(waiter);
  return ready;
}

// Cuts the batch that is reserved for this thread: a new Batch object. Py_None: nothing is left. nullptr with an
// exception set.
PyObject* cut_batch(EngineObject* self, CloseReason reason, const ItemWeights& live) {
  auto* batch = new EngineBatch(self);
  PyObject* object = make_batch(batch);
  if (object == nullptr) {
    self->engine->decline();
    return nullptr;
  }
  // The batch is cut only now, with the GIL held again: requests that came meanwhile are in it.
  if (batch->cut(reason, live)) return object;
  Py_DECREF(object);
  return PyErr_Occurred() == nullptr ? Py_NewRef(Py_None) : nullptr;
}

// The next Batch object, for which there is room beside `live`. nullptr without an exception: the wait has ended, or
// `closed`: the engine is closed, or this process is a forked child.
PyObject* next_batch(EngineObject* self, const WaitEnd& end, const ItemWeights& live, DeferredWake& later,
                     bool& closed) {
  for (;;) {
    closed = self->fork_generation != fork_generation();
    if (closed) return nullptr;
    CloseReason reason = CloseReason::kIdle;
    // If a batch is due already, or this thread must not wait, the GIL is not released.
    Engine::Ready ready = self->engine->poll(reason, live);
    if (ready == Engine::Ready::kNotYet || (ready == Engine::Ready::kClosed && !end.when_closed)) {
      if (end.deadline != TimePoint::max() && end.deadline <= Clock::now()) return nullptr;
      ready = wait_for_batch(self, reason, end, live, later);
    }
    later.wake();
    closed = ready == Engine::Ready::kClosed;
    if (closed || ready == Engine::Ready::kNotYet) return nullptr;
    if (ready == Engine::Ready::kInterrupted) {
      if (PyErr_CheckSignals() < 0) return nullptr;
      continue;
    }
    PyObject* batch = cut_batch(self, reason, live);
    if (batch != Py_None) return batch;
    Py_DECREF(batch);
  }
}

}  // namespace

PyObject* engine_run_batches(PyObject* object, PyObject* args) {
  EngineObject* self = self_of(object);
  PyObject *predict, *logged;
  if (!PyArg_ParseTuple(args, "OO:run_batches", &predict, &logged)) return nullptr;
  if (!begin_serving(self)) return nullptr;
  const auto next = [self](DeferredWake& later) {
    bool closed = false;
    PyObject* batch = next_batch(self, {.behind = IdleWorker::Behind::kAllOfFast}, {}, later, closed);
    return batch != nullptr || PyErr_Occurred() != nullptr ? batch : Py_NewRef(Py_None);
  };
  PyObject* left = run_batches(next, predict, logged);
  if (left == nullptr || left == Py_None) set_served_engine(nullptr);
  return left;
}

PyObject* engine_next_batch(PyObject* object, PyObject* timeout) {
  EngineObject* self = self_of(object);
  WaitEnd end{.rung = &self->rung, .when_closed = timeout == Py_None};
  if (!deadline_from(timeout, end.deadline)) return nullptr;
  // A thread that does not wait is no worker of the engine, which may have requests of its own.
  if (!(end.deadline > Clock::now() ? begin_serving(self) : check_workers(self))) return nullptr;
  bool closed = false;
  const ItemWeights live = self->weighs ? EngineBatch::live_items(self) : ItemWeights{};
  DeferredWake none;
  PyObject* batch = next_batch(self, end, live, none, closed);
  if (batch != nullptr || PyErr_Occurred() != nullptr) return batch;
  self->rung = false;
  if (!closed) Py_RETURN_NONE;
  if (served_engine() == self) set_served_engine(nullptr);
  Py_RETURN_FALSE;
}

PyObject* engine_begin_serving(PyObject* object, PyObject*) {
  if (!begin_serving(self_of(object))) return nullptr;
  Py_RETURN_NONE;
}

PyObject* engine_ring(PyObject* object, PyObject*) {
  EngineObject* self = self_of(object);
  self->rung = true;
  if (self->fork_generation != fork_generation()) Py_RETURN_NONE;
  return none_or_raise(attempt([&] { self->engine->wake_idle(); }));
}

PyObject* engine_unwanted_threads(PyObject* object, PyObject*) {
  return EngineBatch::unwanted_threads(self_of(object));
}

PyObject* engine_run_timer(PyObject* object, PyObject*) {
  EngineObject* self = self_of(object);
  if (self->backend->watches_deadlines()) {
    PyErr_SetString(PyExc_RuntimeError, "the deadlines of this engine are watched by its Server or ClientLink");
    return nullptr;
  }
  DeadlineTimer& timer = self->engine->deadline_timer();
  for (;;) {
    if (self->fork_generation != fork_generation()) Py_RETURN_NONE;
    Waiter& waiter = WaiterPool::acquire();
    PyThreadState* state = PyEval_SaveThread();
    const DeadlineTimer::Ready ready = timer.wait(waiter);
    PyEval_RestoreThread(state);
    WaiterPool::release(waiter);
    if (ready == DeadlineTimer::Ready::kClosed) Py_RETURN_NONE;
    if (PyErr_CheckSignals() < 0) {
      if (self->fork_generation == fork_generation()) timer.leave();
      return nullptr;
    }
    EndedRequests expired;
    timer.expire(expired);
    self->backend->publish(expired);
  }
}

}  // namespace service_streamer::bindings
