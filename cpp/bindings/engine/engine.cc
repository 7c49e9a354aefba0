#include "bindings/engine/engine.h"

#include <climits>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/engine/engine_arguments.h"
#include "bindings/engine/engine_stats.h"
#include "bindings/engine/thread_backend.h"
#include "bindings/futures/engine_object.h"
#include "bindings/native/native_backend.h"
#include "bindings/processes/process_backend.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/fork.h"
#include "bindings/python/free_threading.h"
#include "bindings/python/methods.h"
#include "bindings/python/waiting.h"

namespace service_streamer::bindings {

namespace {

EngineObject* self_of(PyObject* self) {
  return reinterpret_cast<EngineObject*>(self);
}

// --- life ---

PyObject* engine_close(PyObject* object, PyObject* drain) {
  EngineObject* self = self_of(object);
  if (!from_this_process(self)) return nullptr;
  const int truth = PyObject_IsTrue(drain);
  if (truth < 0) return nullptr;
  EndedRequests dropped;
  self->engine->close(truth != 0, dropped);
  self->backend->publish(dropped);
  Py_RETURN_NONE;
}

PyObject* engine_abort(PyObject* object, PyObject*) {
  EngineObject* self = self_of(object);
  if (!from_this_process(self)) return nullptr;
  EndedRequests dropped;
  self->engine->abort(Outcome::kClosed, dropped);
  self->backend->publish(dropped);
  Py_RETURN_NONE;
}

PyObject* engine_closed(PyObject* object, PyObject*) {
  EngineObject* self = self_of(object);
  return from_this_process(self) ? PyBool_FromLong(self->engine->closed()) : nullptr;
}

PyObject* engine_join(PyObject* object, PyObject* timeout) {
  EngineObject* self = self_of(object);
  TimePoint deadline;
  if (!from_this_process(self) || !deadline_from(timeout, deadline)) return nullptr;
  const int drained =
      wait_without_gil([&](Waiter& waiter) { return self->engine->wait_until_drained(waiter, deadline); });
  return drained < 0 ? nullptr : PyBool_FromLong(drained);
}

PyObject* engine_stats(PyObject* object, PyObject*) {
  EngineObject* self = self_of(object);
  return from_this_process(self) ? stats_dict(*self->engine) : nullptr;
}

PyObject* engine_call_at_next_request(PyObject* object, PyObject* function) {
  EngineObject* self = self_of(object);
  if (!from_this_process(self)) return nullptr;
  PyObject* own = PyList_New(0);
  if (own == nullptr) return nullptr;
  bool added = false;
  {
    const Locked lock(self);
    if (self->next_request == nullptr) self->next_request = std::exchange(own, nullptr);
    added = PyList_Append(self->next_request, function) == 0;
  }
  Py_XDECREF(own);
  return added ? Py_NewRef(Py_None) : nullptr;
}

// --- recording ---

PyObject* engine_start_recording(PyObject* object, PyObject* args) {
  EngineObject* self = self_of(object);
  double seconds = 0;
  Py_ssize_t max_events = 0;
  if (!from_this_process(self) || !PyArg_ParseTuple(args, "dn", &seconds, &max_events)) return nullptr;
  std::uint64_t recording = 0;
  const CaughtError failure = attempt([&] {
    recording = self->engine->recorder().start(duration_from(seconds), static_cast<std::size_t>(max_events));
  });
  return failure.raise() ? nullptr : PyLong_FromUnsignedLongLong(recording);
}

PyObject* engine_finish_recording(PyObject* object, PyObject* number) {
  EngineObject* self = self_of(object);
  const unsigned long long recording = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred() != nullptr || !from_this_process(self)) return nullptr;
  std::string events;
  const CaughtError failure = attempt([&] { events = self->engine->recorder().finish(recording); });
  if (failure.raise()) return nullptr;
  return PyBytes_FromStringAndSize(events.data(), static_cast<Py_ssize_t>(events.size()));
}

// --- options ---

PyObject* engine_configure(PyObject* object, PyObject* args, PyObject* kwargs) {
  EngineObject* self = self_of(object);
  GivenSettings given;
  static const char* names[] = {"batch_size", "max_latency", "policy", "slo", nullptr};
  EngineChange change;
  if (!from_this_process(self) ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO", const_cast<char**>(names), &given.batch_size,
                                   &given.max_latency, &given.policy, &given.slo) ||
      !change_from(given, change)) {
    return nullptr;
  }
  return none_or_raise(attempt([&] { self->engine->configure(change); }));
}

PyObject* engine_set_workers(PyObject* object, PyObject* number) {
  EngineObject* self = self_of(object);
  if (!from_this_process(self)) return nullptr;
  const long workers = PyLong_AsLong(number);
  if (workers == -1 && PyErr_Occurred() != nullptr) return nullptr;
  if (workers < 1 || workers > INT_MAX) {
    PyErr_SetString(PyExc_ValueError, "the number of workers is out of range");
    return nullptr;
  }
  self->engine->set_workers(static_cast<int>(workers));
  Py_RETURN_NONE;
}

// nullptr with an exception set.
Backend* make_backend(const EngineArguments& arguments) {
  if (arguments.model != Py_None) return NativeBackend::make(arguments.model);
  if (arguments.remote) return make_process_backend(arguments.inline_items);
  return new ThreadBackend;
}

PyObject* engine_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  EngineArguments arguments;
  if (!engine_arguments_from(args, kwargs, arguments)) return nullptr;
  PyObject* object = type->tp_alloc(type, 0);
  if (object == nullptr) return nullptr;
  EngineObject* self = self_of(object);
  self->own_backend = make_backend(arguments);
  self->backend = self->own_backend;
  if (self->own_backend == nullptr) {
    Py_DECREF(object);
    return nullptr;
  }
  try {
    self->engine = new Engine(arguments.options, std::move(arguments.shares));
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
    Py_DECREF(object);
    return nullptr;
  }
  self->future_type = Py_NewRef(arguments.future_type);
  self->start = Py_NewRef(arguments.start);
  self->start_timer = Py_NewRef(arguments.start_timer);
  if (arguments.group != Py_None) self->group = Py_NewRef(arguments.group);
  if (arguments.ended_early != Py_None) self->ended_early = Py_NewRef(arguments.ended_early);
  self->fork_generation = fork_generation();
  self->output_batch = arguments.output_batch;
  self->copy_outputs = arguments.copy_outputs;
  self->weighs = arguments.options.max_weight < std::numeric_limits<double>::infinity();
  return object;
}

// --- memory ---

int engine_traverse(PyObject* object, visitproc visit, void* arg) {
  EngineObject* self = self_of(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->future_type);
  Py_VISIT(self->start);
  Py_VISIT(self->start_timer);
  Py_VISIT(self->group);
  Py_VISIT(self->ended_early);
  Py_VISIT(self->next_request.load());
  return 0;
}

int engine_clear(PyObject* object) {
  EngineObject* self = self_of(object);
  Py_CLEAR(self->future_type);
  Py_CLEAR(self->start);
  Py_CLEAR(self->start_timer);
  Py_CLEAR(self->group);
  Py_CLEAR(self->ended_early);
  Py_XDECREF(self->next_request.exchange(nullptr));
  return 0;
}

void engine_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  engine_clear(object);
  EngineObject* self = self_of(object);
  // A forked child leaks its copy of the engine. Futures keep the engine, but calls whose future was dropped may be
  // left in it.
  if (self->fork_generation == fork_generation() && self->engine != nullptr) {
    while (self->retired != nullptr) delete std::exchange(self->retired, self->retired->next_retired);
    EndedRequests left;
    self->engine->abort(Outcome::kClosed, left);
    self->backend->publish(left);
    delete self->engine;
  }
  delete self->own_backend;  // last, because publishing needs it
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"predict", as_method(engine_predict), METH_FASTCALL,
     "predict($self, batch, timeout, priority, tenant=None, /)\n--\n\n"
     "Blocks until the result, the deadline, or a signal handler that raises."},
    {"submit", as_method(engine_submit), METH_FASTCALL,
     "submit($self, batch, timeout, priority, tenant=None, context=None, /)\n--\n\n"
     "Returns a future; blocks only while the queue is full."},
    {"submit_async", as_method(engine_submit_async), METH_FASTCALL,
     "submit_async($self, batch, timeout, priority, tenant=None, context=None, admitted=False, /)\n--\n\n"
     "Returns a future; never blocks: a full queue makes the request wait, not the thread. With\n"
     "`admitted` it waits also where a full queue refuses."},
    {"share", as_method(engine_share), METH_FASTCALL,
     "share($self, batch, priority, tenant, context, admitted, live, key, /)\n--\n\n"
     "Returns a request without a deadline, and True; or the one that the dict `live` has under the key,\n"
     "and False. With the key None, others cannot join it. Never blocks. Each caller calls _leave() once."},
    {"predict_shared", as_method(engine_predict_shared), METH_FASTCALL,
     "predict_shared($self, batch, timeout, priority, tenant, live, key, /)\n--\n\n"
     "Does what share() does, and blocks until the result of a new request: it is returned, and the request\n"
     "has been left. If there is none in time, or an error, or another caller's request: what share() returns."},
    {"run_batches", engine_run_batches, METH_VARARGS,
     "run_batches($self, predict, logged, /)\n--\n\n"
     "Runs and answers what is due; blocks until the engine is closed and empty: None.\n\n"
     "Or until a batch is left to the caller: (batch, raised, refused), with what\n"
     "`predict` raised, with why its outputs were refused, or with neither: it was\n"
     "not run, because logged() is true or a request has a trace context."},
    {"next_batch", engine_next_batch, METH_O,
     "next_batch($self, timeout, /)\n--\n\n"
     "Takes a batch, which together with those that this thread has not answered weighs at most max_weight.\n"
     "None: none in so many seconds, or ring(). False, with the timeout None: closed and empty. The thread is a\n"
     "worker from then on, which must not wait for requests of this engine; with the timeout 0 it is not."},
    {"ring", engine_ring, METH_NOARGS,
     "ring($self)\n--\n\nEnds the wait of at least one thread in next_batch(), or the next wait."},
    {"begin_serving", engine_begin_serving, METH_NOARGS,
     "begin_serving($self)\n--\n\nMakes a wait of this thread for a request of the engine raise RuntimeError."},
    {"unwanted_threads", engine_unwanted_threads, METH_NOARGS,
     "unwanted_threads($self)\n--\n\n"
     "The idents of the threads that work on batches whose requests have all ended."},
    {"run_timer", engine_run_timer, METH_NOARGS,
     "run_timer($self)\n--\n\nEnds requests whose deadline passed, until the engine is closed."},
    {"configure", as_method(engine_configure), METH_VARARGS | METH_KEYWORDS,
     "configure($self, *, batch_size=None, max_latency=None, policy=None, slo=None)\n--\n\n"
     "Changes settings at run time and keeps what the policy has learned; None leaves a setting as it is."},
    {"set_workers", engine_set_workers, METH_O,
     "set_workers($self, number, /)\n--\n\nChanges the number of workers at run time."},
    {"close", engine_close, METH_O,
     "close($self, drain, /)\n--\n\n"
     "Refuses new requests and, without drain, ends those in the queue. Never blocks."},
    {"abort", engine_abort, METH_NOARGS, "abort($self)\n--\n\nEnds all requests, also those that are running."},
    {"closed", engine_closed, METH_NOARGS, "closed($self)\n--\n\nTrue: new requests are refused."},
    {"join", engine_join, METH_O,
     "join($self, timeout, /)\n--\n\nBlocks until all requests have ended; False: the time is over."},
    {"stats", engine_stats, METH_NOARGS, "stats($self)\n--\n\nCounters and times as a dict."},
    {"call_at_next_request", engine_call_at_next_request, METH_O,
     "call_at_next_request($self, function, /)\n--\n\nCalls a function once, before the next request is queued."},
    {"start_recording", engine_start_recording, METH_VARARGS,
     "start_recording($self, seconds, max_events, /)\n--\n\n"
     "Records events for a timeline; returns the number of the recording, 0 if there is one already."},
    {"finish_recording", engine_finish_recording, METH_O,
     "finish_recording($self, number, /)\n--\n\n"
     "Ends the recording and returns its events; b'' if there is no such recording."},
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
  engine_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return engine_type != nullptr && PyModule_AddType(module, engine_type) == 0;
}

}  // namespace service_streamer::bindings
