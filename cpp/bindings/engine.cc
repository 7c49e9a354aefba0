#include "bindings/engine.h"

#include <pybind11/pybind11.h>

#include <stdexcept>

#include "bindings/arguments.h"
#include "bindings/batch.h"
#include "bindings/engine_stats.h"
#include "bindings/errors.h"
#include "bindings/future.h"
#include "bindings/methods.h"

namespace service_streamer::bindings {
namespace {

EngineObject* self_of(PyObject* self) { return reinterpret_cast<EngineObject*>(self); }

// A forked child has a copy of the parent's engine, whose mutex may be held by a thread that it does not have.
bool from_this_process(EngineObject* self) {
  if (self->fork_generation == fork_generation()) return true;
  raise_message("StreamerClosed", "this engine belongs to the parent process");
  return false;
}

// --- callers ---

// Who waits for the answer, and so who ends the request when its deadline passes.
enum class Caller { kPredict, kSubmit };

// Reads the arguments of a call and makes its request; nullptr with an exception set.
FutureObject* read_request(EngineObject* self, PyObject* const* args, Py_ssize_t nargs, Caller caller) {
  if (nargs != 3) {
    PyErr_SetString(PyExc_TypeError, "batch, timeout and priority are wanted");
    return nullptr;
  }
  if (!from_this_process(self)) return nullptr;
  TimePoint deadline;
  int priority;
  if (!deadline_from(args[1], deadline) || !priority_from(args[2], priority)) return nullptr;
  PyObject* items = items_from(args[0]);
  if (items == nullptr) return nullptr;
  PyTypeObject* type = caller == Caller::kPredict ? future_base_type : reinterpret_cast<PyTypeObject*>(self->future_type);
  FutureObject* future = make_future(type, self, items);
  if (future == nullptr) return nullptr;
  future->request.deadline = deadline;
  future->request.priority = priority;
  // A timer for each greenlet's deadline would cost more than the rest of the call.
  future->request.watched = caller == Caller::kPredict && !gevent_is_loaded();
  return future;
}

bool call_once(bool& called, PyObject* hook) {
  if (called) return true;
  called = true;
  PyObject* none = PyObject_CallNoArgs(hook);
  if (none == nullptr) called = false;
  Py_XDECREF(none);
  return none != nullptr;
}

// A request without items is answered here.
bool answer_empty(FutureObject* future) {
  future->value = PyList_New(0);
  if (future->value == nullptr) return false;
  future->request.outcome = Outcome::kAnswered;
  future->request.arrived = future->request.ended = Clock::now();
  WakeChain chain(1);
  chain.publish(future->request.completion);
  Py_CLEAR(future->items);
  return true;
}

// Hands the request to the engine; false with an exception set. `waiting`: it waits for room in the queue.
bool enqueue(EngineObject* self, FutureObject* future, bool& waiting) {
  waiting = false;
  if (self->engine->closed()) {
    raise_message("StreamerClosed", "the streamer is closed");
    return false;
  }
  if (future->request.size == 0) return answer_empty(future);
  if (!call_once(self->started, self->start)) return false;
  if (!future->request.watched && future->request.deadline != TimePoint::max() &&
      !call_once(self->timer_started, self->start_timer)) {
    return false;
  }
  Py_INCREF(reinterpret_cast<PyObject*>(future));  // goes with the request's last hold
  switch (self->engine->submit(future->request)) {
    case Engine::Admission::kQueued:
      return true;
    case Engine::Admission::kWaiting:
      waiting = true;
      return true;
    case Engine::Admission::kClosed:
      raise_message("StreamerClosed", "the streamer is closed");
      break;
    case Engine::Admission::kFull: {
      const double seconds = self->engine->retry_after();
      PyObject* message = PyUnicode_FromFormat("the queue has no room for %u more items (max_queue=%zu)",
                                               static_cast<unsigned>(future->request.size),
                                               self->engine->options().max_queue);
      raise_error("QueueFull", message != nullptr ? Py_BuildValue("(Nd)", message, seconds) : nullptr);
      break;
    }
  }
  Py_DECREF(reinterpret_cast<PyObject*>(future));
  return false;
}

PyObject* engine_predict(PyObject* object, PyObject* const* args, Py_ssize_t nargs) {
  EngineObject* self = self_of(object);
  FutureObject* future = read_request(self, args, nargs, Caller::kPredict);
  if (future == nullptr) return nullptr;
  bool waiting;
  PyObject* result = nullptr;
  if (enqueue(self, future, waiting)) {
    const int done = wait_for_future(future, future->request.deadline);
    if (done < 0) {
      end_future(future, Outcome::kCancelled, true);
    } else {
      // Too late: unless it was answered in this very moment, it ends here.
      if (done == 0) end_future(future, Outcome::kExpired, true);
      result = take_result(future);
    }
  }
  Py_DECREF(reinterpret_cast<PyObject*>(future));
  return result;
}

// Whether this thread runs an event loop, which must not be blocked: the request then waits for room by itself.
bool in_event_loop() {
  PyObject* answer = call_helper("service_streamer._gevent", "in_event_loop", nullptr);
  if (answer == nullptr) PyErr_WriteUnraisable(nullptr);
  const bool running = answer == Py_True;
  Py_XDECREF(answer);
  return running;
}

// Blocks until the request is in the queue or ended; false with a signal handler's exception set.
bool wait_for_room(EngineObject* self, FutureObject* future) {
  Waiter& waiter = WaiterPool::acquire();
  Completion::Wait end;
  int raised = 0;
  do {
    PyThreadState* state = PyEval_SaveThread();
    end = self->engine->wait_for_room(future->request, waiter, future->request.deadline);
    PyEval_RestoreThread(state);
    if (end == Completion::Wait::kInterrupted) raised = PyErr_CheckSignals();
  } while (end == Completion::Wait::kInterrupted && raised == 0);
  WaiterPool::release(waiter);
  if (end == Completion::Wait::kTimeout) end_future(future, Outcome::kExpired, true);
  return raised == 0;
}

PyObject* submit(PyObject* object, PyObject* const* args, Py_ssize_t nargs, bool may_block) {
  EngineObject* self = self_of(object);
  FutureObject* future = read_request(self, args, nargs, Caller::kSubmit);
  if (future == nullptr) return nullptr;
  bool waiting;
  bool accepted = enqueue(self, future, waiting);
  if (accepted && waiting && may_block && !in_event_loop()) {
    accepted = wait_for_room(self, future);
    if (!accepted) {
      end_future(future, Outcome::kCancelled, true);
    } else if (future->request.outcome == Outcome::kClosed || future->request.outcome == Outcome::kExpired) {
      accepted = false;  // it never got in
      take_result(future);
    }
  }
  if (accepted) return reinterpret_cast<PyObject*>(future);
  Py_DECREF(reinterpret_cast<PyObject*>(future));
  return nullptr;
}

PyObject* engine_submit(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  return submit(self, args, nargs, true);
}

PyObject* engine_submit_async(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  return submit(self, args, nargs, false);
}

// --- workers and the timer ---

PyObject* engine_next_batch(PyObject* object, PyObject*) {
  EngineObject* self = self_of(object);
  if (self->fork_generation != fork_generation()) Py_RETURN_NONE;
  for (;;) {
    CloseReason reason = CloseReason::kIdle;
    Engine::Ready ready = self->engine->poll(reason);  // while the next batch is due the GIL need not be given away
    if (ready == Engine::Ready::kNotYet) {
      Waiter& waiter = WaiterPool::acquire();
      PyThreadState* state = PyEval_SaveThread();
      ready = self->engine->wait_for_batch(waiter, reason);
      PyEval_RestoreThread(state);
      WaiterPool::release(waiter);
    }
    if (ready == Engine::Ready::kClosed) Py_RETURN_NONE;
    if (ready == Engine::Ready::kInterrupted) {
      if (PyErr_CheckSignals() < 0) return nullptr;
      continue;
    }
    // Only now that the GIL is held again is the batch cut: it grew until this moment.
    PyObject* batch = cut_batch(self, reason);
    if (batch != Py_None) return batch;
    Py_DECREF(batch);
  }
}

PyObject* engine_run_timer(PyObject* object, PyObject*) {
  EngineObject* self = self_of(object);
  if (!from_this_process(self)) return nullptr;
  for (;;) {
    Waiter& waiter = WaiterPool::acquire();
    PyThreadState* state = PyEval_SaveThread();
    const Engine::Ready ready = self->engine->wait_for_deadline(waiter);
    PyEval_RestoreThread(state);
    WaiterPool::release(waiter);
    if (ready == Engine::Ready::kClosed) Py_RETURN_NONE;
    if (PyErr_CheckSignals() < 0) return nullptr;
    EndedRequests expired;
    self->engine->expire(expired);
    publish(expired);
  }
}

// --- life ---

PyObject* engine_close(PyObject* object, PyObject* drain) {
  EngineObject* self = self_of(object);
  if (!from_this_process(self)) return nullptr;
  const int truth = PyObject_IsTrue(drain);
  if (truth < 0) return nullptr;
  EndedRequests dropped;
  self->engine->close(truth != 0, dropped);
  publish(dropped);
  Py_RETURN_NONE;
}

PyObject* engine_abort(PyObject* object, PyObject*) {
  EngineObject* self = self_of(object);
  if (!from_this_process(self)) return nullptr;
  EndedRequests dropped;
  self->engine->abort(dropped);
  publish(dropped);
  Py_RETURN_NONE;
}

PyObject* engine_join(PyObject* object, PyObject* timeout) {
  EngineObject* self = self_of(object);
  TimePoint deadline;
  if (!from_this_process(self) || !deadline_from(timeout, deadline)) return nullptr;
  Waiter& waiter = WaiterPool::acquire();
  Completion::Wait end;
  int raised = 0;
  do {
    PyThreadState* state = PyEval_SaveThread();
    end = self->engine->wait_until_drained(waiter, deadline);
    PyEval_RestoreThread(state);
    if (end == Completion::Wait::kInterrupted) raised = PyErr_CheckSignals();
  } while (end == Completion::Wait::kInterrupted && raised == 0);
  WaiterPool::release(waiter);
  if (raised != 0) return nullptr;
  return PyBool_FromLong(end == Completion::Wait::kDone);
}

PyObject* engine_stats(PyObject* object, PyObject*) {
  EngineObject* self = self_of(object);
  return from_this_process(self) ? stats_dict(*self->engine) : nullptr;
}

// --- options ---

bool choose(PyObject* value, const char* name, std::initializer_list<const char*> names, std::size_t& index) {
  index = 0;
  for (const char* candidate : names) {
    if (PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(value, candidate) == 0) return true;
    ++index;
  }
  PyObject* choices = PyList_New(0);
  for (const char* candidate : names) {
    PyObject* choice = choices != nullptr ? PyUnicode_FromString(candidate) : nullptr;
    if (choice != nullptr) PyList_Append(choices, choice);
    Py_XDECREF(choice);
  }
  PyErr_Format(PyExc_ValueError, "%s must be one of %R, got %R", name, choices, value);
  Py_XDECREF(choices);
  return false;
}

bool size_from(PyObject* value, const char* name, std::size_t& size) {
  const Py_ssize_t number = PyLong_Check(value) && !PyBool_Check(value) ? PyLong_AsSsize_t(value) : -1;
  if (number < 1 || number > UINT32_MAX) {
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s must be an int of at least 1, got %R", name, value);
    return false;
  }
  size = static_cast<std::size_t>(number);
  return true;
}

// nullptr or None: not given.
bool read_policy_options(PyObject* batch_size, PyObject* max_latency, PyObject* policy, EngineOptions& options) {
  const auto given = [](PyObject* value) { return value != nullptr && value != Py_None; };
  std::size_t kind;
  if (given(batch_size) && !size_from(batch_size, "batch_size", options.batch_size)) return false;
  if (given(max_latency) && !seconds_from(max_latency, "max_latency", options.max_latency)) return false;
  if (given(policy)) {
    if (!choose(policy, "policy", {"adaptive", "greedy", "window"}, kind)) return false;
    options.policy = static_cast<PolicyKind>(kind);
  }
  return true;
}

PyObject* engine_configure(PyObject* object, PyObject* args, PyObject* kwargs) {
  EngineObject* self = self_of(object);
  PyObject *batch_size = nullptr, *max_latency = nullptr, *policy = nullptr;
  static const char* names[] = {"batch_size", "max_latency", "policy", nullptr};
  if (!from_this_process(self) || !PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOO", const_cast<char**>(names),
                                                               &batch_size, &max_latency, &policy)) {
    return nullptr;
  }
  EngineOptions options = self->engine->options();
  if (!read_policy_options(batch_size, max_latency, policy, options)) return nullptr;
  self->engine->configure(options);
  Py_RETURN_NONE;
}

PyObject* engine_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject *batch_size, *max_latency, *policy, *workers, *max_queue, *overflow, *output, *future_type, *start, *start_timer,
      *cooperative_wait;
  int spin;
  static const char* names[] = {"batch_size", "max_latency", "policy",      "workers", "max_queue",   "overflow",
                                "output",     "spin",        "future_type", "start",   "start_timer", "cooperative_wait",
                                nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OOOOOOOpOOOO", const_cast<char**>(names), &batch_size, &max_latency,
                                   &policy, &workers, &max_queue, &overflow, &output, &spin, &future_type, &start,
                                   &start_timer, &cooperative_wait)) {
    return nullptr;
  }
  EngineOptions options;
  std::size_t worker_count, overflow_kind, output_kind;
  if (!read_policy_options(batch_size, max_latency, policy, options) ||
      !size_from(workers, "workers", worker_count) ||
      (max_queue != Py_None && !size_from(max_queue, "max_queue", options.max_queue)) ||
      !choose(overflow, "overflow", {"block", "reject"}, overflow_kind) ||
      !choose(output, "output", {"items", "batch"}, output_kind)) {
    return nullptr;
  }
  if (!PyType_Check(future_type) ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(future_type), future_base_type)) {
    PyErr_Format(PyExc_TypeError, "future_type must be a subclass of FutureBase, got %R", future_type);
    return nullptr;
  }
  options.workers = static_cast<int>(worker_count);
  options.overflow = overflow_kind == 0 ? Overflow::kBlock : Overflow::kReject;
  options.spin = spin != 0;

  PyObject* object = type->tp_alloc(type, 0);
  if (object == nullptr) return nullptr;
  EngineObject* self = self_of(object);
  try {
    self->engine = new Engine(options);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
    Py_DECREF(object);
    return nullptr;
  }
  self->future_type = Py_NewRef(future_type);
  self->start = Py_NewRef(start);
  self->start_timer = Py_NewRef(start_timer);
  self->cooperative_wait = Py_NewRef(cooperative_wait);
  self->fork_generation = fork_generation();
  self->output_batch = output_kind == 1;
  return object;
}

// --- memory ---

int engine_traverse(PyObject* object, visitproc visit, void* arg) {
  EngineObject* self = self_of(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->future_type);
  Py_VISIT(self->start);
  Py_VISIT(self->start_timer);
  Py_VISIT(self->cooperative_wait);
  return 0;
}

int engine_clear(PyObject* object) {
  EngineObject* self = self_of(object);
  Py_CLEAR(self->future_type);
  Py_CLEAR(self->start);
  Py_CLEAR(self->start_timer);
  Py_CLEAR(self->cooperative_wait);
  return 0;
}

void engine_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  engine_clear(object);
  EngineObject* self = self_of(object);
  // Every live request holds the engine, so none is left. The parent's copy in a child is leaked.
  if (self->fork_generation == fork_generation()) delete self->engine;
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"predict", as_method(engine_predict), METH_FASTCALL,
     "predict(batch, timeout, priority): blocks until the answer, the deadline or a signal."},
    {"submit", as_method(engine_submit), METH_FASTCALL,
     "submit(batch, timeout, priority): a future; blocks only while the queue is full."},
    {"submit_async", as_method(engine_submit_async), METH_FASTCALL,
     "submit_async(batch, timeout, priority): a future; never blocks, waits for room inside the engine."},
    {"next_batch", engine_next_batch, METH_NOARGS, "Blocks until a batch is due; None once the engine is closed and empty."},
    {"run_timer", engine_run_timer, METH_NOARGS, "Ends requests whose deadline passed, until the engine is closed."},
    {"configure", as_method(engine_configure), METH_VARARGS | METH_KEYWORDS,
     "configure(*, batch_size=None, max_latency=None, policy=None): at run time, keeping what the policy learned."},
    {"close", engine_close, METH_O, "close(drain): refuses intake and, without drain, ends what is queued. Never blocks."},
    {"abort", engine_abort, METH_NOARGS, "Ends everything, also what is running."},
    {"join", engine_join, METH_O, "join(timeout): blocks until everything has ended; False: not within the time."},
    {"stats", engine_stats, METH_NOARGS, "Counters and times as a dict."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Brings requests and workers together.")},
    {Py_tp_new, reinterpret_cast<void*>(engine_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(engine_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(engine_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(engine_clear)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.Engine", sizeof(EngineObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                    slots};

}  // namespace

bool make_engine_type(PyObject* module) {
  auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (type == nullptr) return false;
  const bool added = PyModule_AddType(module, type) == 0;
  Py_DECREF(reinterpret_cast<PyObject*>(type));
  return added;
}

}  // namespace service_streamer::bindings
