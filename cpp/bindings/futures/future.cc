#include "bindings/futures/future.h"

#include <atomic>
#include <new>
#include <utility>

#include "bindings/futures/callbacks.h"
#include "bindings/futures/engine_object.h"
#include "bindings/futures/greenlets.h"
#include "bindings/futures/mailbox.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/free_threading.h"
#include "bindings/python/libraries.h"
#include "bindings/python/methods.h"
#include "bindings/python/texts.h"

namespace service_streamer::bindings {

PyTypeObject* future_base_type = nullptr;

namespace {

FutureObject* self_of(PyObject* self) {
  return reinterpret_cast<FutureObject*>(self);
}

// --- waiting ---

// A model that waits for an import may wait for ever: after this time without a first answer the log says so.
constexpr Duration kLookAfter = std::chrono::seconds(1);

// Waits as a greenlet, so that the gevent hub of this thread goes on. 1: waited; 0: this is no greenlet; -1: an
// exception.
int wait_cooperatively(FutureObject* future, TimePoint deadline) {
  if (!gevent_is_loaded()) return 0;
  const Request& request = *future->request;
  PyObject* seconds = Py_NewRef(Py_None);
  if (deadline != TimePoint::max() && (request.watched || deadline != request.deadline)) {
    const double left = service_streamer::seconds(deadline - Clock::now());
    Py_SETREF(seconds, PyFloat_FromDouble(left > 0 ? left : 0));
    if (seconds == nullptr) return -1;
  }
  const int waited = wait_in_greenlet(future, seconds);
  Py_DECREF(seconds);
  return waited;
}

// How often this thread has looked for a running event loop.
thread_local int loop_checks = 0;

// asyncio's function that returns the running loop, borrowed; nullptr: it is not to be called. Only the first waits of
// a thread are looked at, so that threads that always wait do not pay for it. A deadline that has passed is only asked
// about.
PyObject* loop_finder(TimePoint deadline) {
  constexpr int kMostChecks = 64;
  if (loop_checks >= kMostChecks || deadline <= Clock::now()) return nullptr;
  return asyncio_running_loop();
}

// Warns if a coroutine is about to block its event loop. False with an exception set: a warning is an error.
bool warn_in_coroutine(PyObject* running_loop) {
  ++loop_checks;
  PyObject* loop = PyObject_CallNoArgs(running_loop);
  if (loop == Py_None) {
    Py_DECREF(loop);
    return true;
  }
  PyObject* none = loop != nullptr ? python::warn_in_coroutine() : nullptr;
  Py_XDECREF(loop);
  Py_XDECREF(none);
  return none != nullptr;
}

// The calling thread takes the batches of the future's engine, so it would wait for itself.
bool serves_engine_of(FutureObject* future) {
  return served_engine() == future->engine;
}

void raise_serves() {
  raise_mistake(PyExc_RuntimeError, "predict-inside-predict_function",
                "this thread runs predict_function (or a done callback) of the streamer that it asks, so it would "
                "wait for itself: call the model directly, or use submit() and add_done_callback()");
}

// --- results ---

// The value, which is put into the caller's order once: a new reference; nullptr with an exception set.
PyObject* value_in_order(FutureObject* future) {
  PyObject *order, *outputs;
  {
    const Locked lock(future);
    order = Py_XNewRef(future->order);
    outputs = Py_NewRef(future->value);
  }
  if (order == nullptr) return outputs;
  PyObject* sorted = python::in_order(outputs, order);
  if (sorted != nullptr) {
    const Locked lock(future);
    if (future->order != nullptr) {
      Py_CLEAR(future->order);
      Py_SETREF(future->value, Py_NewRef(sorted));
    } else {  // another thread was first
      Py_SETREF(sorted, Py_NewRef(future->value));
    }
  }
  Py_DECREF(order);
  Py_DECREF(outputs);
  return sorted;
}

PyObject* raise_expired(FutureObject* future) {
  const Request& request = *future->request;
  PyObject* reason = future->engine->backend->obstacle(future);
  if (reason == nullptr) return nullptr;
  const bool overdue = request.ended < request.deadline;
  raise_message(python::request_timeout, "the request of %s was not answered within %s (%s)%U",
                items_text(request.size).text, overdue ? "the time for a first connection" : "its deadline",
                duration_text(request.ended - request.arrived).text, reason);
  Py_DECREF(reason);
  return nullptr;
}

PyObject* raise_dropped(FutureObject* future) {
  PyObject* reason = future->engine->backend->close_reason();
  if (reason == nullptr) return nullptr;
  raise_message(python::streamer_closed, "the streamer was closed before the request of %s was answered%U",
                items_text(future->request->size).text, reason);
  Py_DECREF(reason);
  return nullptr;
}

// --- methods ---

bool parse_timeout(PyObject* const* args, Py_ssize_t nargs, PyObject* names, TimePoint& deadline) {
  const Py_ssize_t keywords = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
  if (nargs + keywords > 1 ||
      (keywords == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "timeout") != 0)) {
    PyErr_SetString(PyExc_TypeError, "the only argument is timeout=None");
    return false;
  }
  return deadline_from(nargs + keywords == 1 ? args[0] : Py_None, deadline, Negative::kIsOver);
}

// Waits as result() and exception() do; false with RequestTimeout or a signal handler's exception raised.
bool wait_or_raise(FutureObject* future, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  if (nargs == 0 && names == nullptr && is_done(future)) return true;
  TimePoint deadline;
  if (!parse_timeout(args, nargs, names, deadline)) return false;
  const int done = wait_for_future(future, deadline);
  if (done == 0) {
    if (PyObject* reason = future->engine->backend->obstacle(future)) {
      raise_message(python::request_timeout, "no result within timeout=%R s; the request goes on%U", args[0], reason);
      Py_DECREF(reason);
    }
  }
  return done == 1;
}

PyObject* future_result(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return wait_or_raise(self_of(self), args, nargs, names) ? take_result(self_of(self)) : nullptr;
}

PyObject* future_exception(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  FutureObject* future = self_of(self);
  if (!wait_or_raise(future, args, nargs, names)) return nullptr;
  note_delivery(future);
  if (!settle(future)) return nullptr;
  if (PyObject* exception = member_of(future, &FutureObject::exception)) return exception;
  if (future->request->outcome == Outcome::kAnswered) Py_RETURN_NONE;
  PyObject* value = take_result(future);
  if (value != nullptr || future->request->outcome == Outcome::kCancelled) return value;
  return take_exception();
}

PyObject* future_done(PyObject* self, PyObject*) {
  return PyBool_FromLong(is_done(self_of(self)));
}

PyObject* future_running(PyObject* self, PyObject*) {
  FutureObject* future = self_of(self);
  const int running = is_done(future) ? 0 : future->engine->backend->query_running(future);
  return running >= 0 ? PyBool_FromLong(running) : nullptr;
}

PyObject* future_cancelled(PyObject* self, PyObject*) {
  FutureObject* future = self_of(self);
  return PyBool_FromLong(is_done(future) && future->request->outcome == Outcome::kCancelled);
}

PyObject* future_cancel(PyObject* self, PyObject*) {
  FutureObject* future = self_of(self);
  if (!is_done(future) && !future->engine->backend->cancel(future)) return nullptr;
  return PyBool_FromLong(future->request->completion.done() && future->request->outcome == Outcome::kCancelled);
}

PyObject* future_abandon(PyObject* self, PyObject*) {
  if (!is_done(self_of(self))) end_future(self_of(self), Outcome::kCancelled, true);
  Py_RETURN_NONE;
}

PyObject* future_leave(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs != 2) {
    PyErr_SetString(PyExc_TypeError, "_leave() takes a dict and a key");
    return nullptr;
  }
  leave(self_of(self), args[0], args[1]);
  Py_RETURN_NONE;
}

PyObject* future_check_waiter(PyObject* self, PyObject*) {
  if (is_done(self_of(self)) || !serves_engine_of(self_of(self))) Py_RETURN_NONE;
  raise_serves();
  return nullptr;
}

PyObject* future_add_done_callback(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* fn;
  static const char* names[] = {"fn", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &fn)) return nullptr;
  if (!PyCallable_Check(fn)) {
    PyErr_Format(PyExc_TypeError, "a done callback must be callable, got %.200s", Py_TYPE(fn)->tp_name);
    return nullptr;
  }
  switch (add_callback(self_of(self), fn)) {
    case Added::kYes:
      Py_RETURN_NONE;
    case Added::kTooLate:
      return python::run_callback(fn, self);
    case Added::kError:
      break;
  }
  return nullptr;
}

PyObject* future_attach(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  FutureObject* future = self_of(self);
  if (nargs != 2) {
    PyErr_SetString(PyExc_TypeError, "_attach() takes a mailbox and a token");
    return nullptr;
  }
  if (!check_mailbox(args[0])) return nullptr;
  if (attach(future, args[0], args[1])) Py_RETURN_TRUE;
  return PyErr_Occurred() != nullptr ? nullptr : Py_NewRef(Py_False);
}

// concurrent.futures.wait() reads the state twice under the condition, and needs the same answer both times.
PyObject* future_state(PyObject* self, void*) {
  FutureObject* future = self_of(self);
  if (!is_done(future)) {
    return PyUnicode_FromString(future->engine->backend->is_running(future) ? "RUNNING" : "PENDING");
  }
  bool shown;
  {
    const Locked lock(future);
    shown = future->condition == nullptr || future->announced;
  }
  if (!shown) return PyUnicode_FromString("RUNNING");
  return PyUnicode_FromString(future->request->outcome == Outcome::kCancelled ? "CANCELLED_AND_NOTIFIED" : "FINISHED");
}

PyObject* future_condition(PyObject* self, void*) {
  return condition_of(self_of(self));
}

PyObject* future_waiters(PyObject* self, void*) {
  FutureObject* future = self_of(self);
  PyObject* waiters = PyList_New(0);
  if (waiters == nullptr) return nullptr;
  const Locked lock(future);
  if (future->waiters == nullptr) {
    future->waiters = Py_NewRef(waiters);
  } else {
    Py_SETREF(waiters, Py_NewRef(future->waiters));
  }
  return waiters;
}

PyObject* future_publish(PyObject* self, PyObject*) {
  const Locked lock(self);
  self_of(self)->announced = true;
  Py_RETURN_NONE;
}

PyObject* future_timing(PyObject* self, PyObject*) {
  FutureObject* future = self_of(self);
  if (!is_done(future)) Py_RETURN_NONE;
  const Request& request = *future->request;
  // In a forked child, a request of the parent may have been taken, but has no end.
  if (request.batch_items == 0 || request.ended < request.taken) Py_RETURN_NONE;
  return Py_BuildValue("(ddIs)", seconds(request.taken - request.arrived), seconds(request.ended - request.taken),
                       request.batch_items, to_string(request.reason));
}

PyObject* future_ended(PyObject* self, PyObject*) {
  FutureObject* future = self_of(self);
  if (!is_done(future)) Py_RETURN_NONE;
  const Request& request = *future->request;
  // In a forked child, a request of the parent has no time of its end.
  const Duration since = request.ended != TimePoint{} ? Clock::now() - request.ended : Duration::zero();
  return Py_BuildValue("(sd)", counter_of(request.outcome).name, seconds(since));
}

PyObject* future_batches(PyObject* self, PyObject*) {
  FutureObject* future = self_of(self);
  // In a forked child, the threads of the parent may have held the locks of its calls.
  if (future->fork_generation != fork_generation()) return PyList_New(0);
  return future->engine->backend->take_batches(future);
}

PyObject* future_new(PyTypeObject*, PyObject*, PyObject*) {
  PyErr_SetString(PyExc_TypeError, "futures are made by submit()");
  return nullptr;
}

// --- memory ---

FutureObject* new_future(PyTypeObject* type, EngineObject* engine) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  FutureObject* future = self_of(self);
  future->engine = reinterpret_cast<EngineObject*>(Py_NewRef(reinterpret_cast<PyObject*>(engine)));
  future->fork_generation = fork_generation();
  return future;
}

int future_traverse(PyObject* self, visitproc visit, void* arg) {
  FutureObject* future = self_of(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<PyObject*>(future->engine));
  Py_VISIT(future->items);
  Py_VISIT(future->outputs);
  Py_VISIT(future->value);
  Py_VISIT(future->exception);
  Py_VISIT(future->order);
  Py_VISIT(future->callbacks);
  Py_VISIT(future->condition);
  Py_VISIT(future->waiters);
  if (future->output_ranges != nullptr) {
    for (const OutputRange& range : *future->output_ranges) Py_VISIT(range.outputs);
  }
  return 0;
}

int future_clear(PyObject* self) {
  FutureObject* future = self_of(self);
  Py_CLEAR(future->items);
  Py_CLEAR(future->outputs);
  Py_CLEAR(future->value);
  Py_CLEAR(future->exception);
  Py_CLEAR(future->order);
  Py_CLEAR(future->callbacks);
  Py_CLEAR(future->condition);
  Py_CLEAR(future->waiters);
  drop_output_ranges(future);
  return 0;
}

void future_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  future_clear(self);
  FutureObject* future = self_of(self);
  Py_CLEAR(future->engine);
  // A forked child leaks the parent's call: another thread may have been using it at the fork.
  if (future->call != nullptr && future->fork_generation == fork_generation()) future->call->unref();
  if (future->call == nullptr) {
    future->own_observers.~Observers();
    future->own.~Request();
  }
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"result", as_method(future_result), METH_FASTCALL | METH_KEYWORDS,
     "result($self, timeout=None)\n--\n\n"
     "Waits for the outputs, for at most `timeout` seconds.\n\nRaises RequestTimeout after that time (the request goes "
     "on), or the exception that the request ended with."},
    {"exception", as_method(future_exception), METH_FASTCALL | METH_KEYWORDS,
     "exception($self, timeout=None)\n--\n\n"
     "Waits like result(), and returns the exception that the request ended with, or None."},
    {"done", future_done, METH_NOARGS,
     "done($self)\n--\n\nWhether the request has ended: with outputs, an exception, or cancelled."},
    {"running", future_running, METH_NOARGS, "running($self)\n--\n\nWhether a worker has any of its items."},
    {"cancelled", future_cancelled, METH_NOARGS, "cancelled($self)\n--\n\nWhether the request was cancelled."},
    {"cancel", future_cancel, METH_NOARGS,
     "cancel($self)\n--\n\nTakes the request out of the queue; False: it has ended, or workers have all its items."},
    {"add_done_callback", as_method(future_add_done_callback), METH_VARARGS | METH_KEYWORDS,
     "add_done_callback($self, fn)\n--\n\n"
     "Calls fn(future) once when the request has ended, in the thread that ended it; at once if it has ended."},
    {"_abandon", future_abandon, METH_NOARGS,
     "_abandon($self)\n--\n\nCancels the request even if it is running: its answer is not wanted."},
    {"_leave", as_method(future_leave), METH_FASTCALL,
     "_leave($self, live, key, /)\n--\n\nEnds the part of a caller in a request of Engine.share(). With the last "
     "one the request is abandoned."},
    {"_check_waiter", future_check_waiter, METH_NOARGS,
     "_check_waiter($self)\n--\n\nRaises RuntimeError where result() would: in a thread that runs the model."},
    {"_publish", future_publish, METH_NOARGS,
     "_publish($self)\n--\n\nShows the end in _state; to be called under _condition."},
    {"_attach", as_method(future_attach), METH_FASTCALL,
     "_attach($self, mailbox, token, /)\n--\n\nPosts the token to the mailbox when the request ends; False: it has "
     "ended."},
    {"_timing", future_timing, METH_NOARGS,
     "_timing($self)\n--\n\n"
     "(seconds in the queue, seconds from there to the end, items of the last batch, why that was closed).\n\n"
     "None: the request has not ended, or this process' engine has not put it into a batch."},
    {"_ended", future_ended, METH_NOARGS,
     "_ended($self)\n--\n\n"
     "(the field of the statistics that counts it, seconds since the end), without decoding the outputs.\n\n"
     "None: the request has not ended."},
    {"_batches", future_batches, METH_NOARGS,
     "_batches($self)\n--\n\n"
     "The finished batches of a native model with items of the request, each returned to one of its requests only:\n"
     "[(contexts as in Batch, items, requests, why it closed, age of the oldest request, seconds since its begin, "
     "seconds since its end, message of the error or None)]."},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, "Future[list[int]], for type checkers."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef attributes[] = {
    {"_state", future_state, nullptr, nullptr, nullptr},
    {"_condition", future_condition, nullptr, nullptr, nullptr},
    {"_waiters", future_waiters, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("One predict or submit call, which waits in the engine's queue itself.")},
    {Py_tp_new, reinterpret_cast<void*>(future_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(future_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(future_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(future_clear)},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.FutureBase", sizeof(FutureObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

bool make_future_type(PyObject* module) {
  future_base_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return future_base_type != nullptr && PyModule_AddType(module, future_base_type) == 0;
}

FutureObject* make_future(PyTypeObject* type, EngineObject* engine, Py_ssize_t size) {
  FutureObject* future = new_future(type, engine);
  if (future == nullptr) return nullptr;
  future->request = new (&future->own) Request;
  future->observers = new (&future->own_observers) Observers;
  future->request->size = static_cast<std::uint32_t>(size);
  return future;
}

FutureObject* make_future(PyTypeObject* type, EngineObject* engine, Call* call, Observers* observers) {
  FutureObject* future = new_future(type, engine);
  if (future == nullptr) {
    call->unref();
    return nullptr;
  }
  future->call = call;
  future->observers = observers;
  future->request = &call->request;
  return future;
}

// A request that was unfinished at the fork is answered in the parent. In the child it ends as closed.
bool is_done(FutureObject* future) {
  if (future->request->completion.done()) return true;
  if (future->fork_generation == fork_generation()) return false;
  future->request->outcome = Outcome::kClosed;
  future->announced = true;
  future->request->completion.finish();
  return true;
}

int wait_for_future(FutureObject* future, TimePoint deadline, WorkerWake worker) {
  const bool serves = serves_engine_of(future);
  PyObject* running_loop = loop_finder(deadline);
  // The worker is woken before Python code runs here.
  if (serves || running_loop != nullptr || gevent_is_loaded() || is_done(future)) std::exchange(worker, {}).run();
  if (is_done(future)) return 1;
  if (serves) {
    raise_serves();
    return -1;
  }
  if (running_loop != nullptr && !warn_in_coroutine(running_loop)) return -1;
  for (;;) {
    const int waited = wait_cooperatively(future, deadline);
    if (waited < 0) return -1;
    if (waited == 0) break;
    if (is_done(future)) return 1;
    if (deadline <= Clock::now()) return 0;  // if not, another greenlet switched to this one early
  }
  const auto wait_until = [&](TimePoint limit) {
    return future->engine->backend->wait(future, limit, std::exchange(worker, {}));
  };
  EngineObject* engine = future->engine;
  if (!engine->answered && !engine->looked && deadline > Clock::now() + kLookAfter) {
    if (const int waited = wait_until(Clock::now() + kLookAfter); waited != 0) return waited;
    if (!engine->looked.exchange(true)) {  // one thread of those that wait
      PyObject* none = python::warn_of_import();
      Py_XDECREF(none);
      if (none == nullptr && !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
      PyErr_Clear();  // the request goes on without the warning
    }
  }
  return wait_until(deadline);
}

void drop_output_ranges(FutureObject* future) {
  std::vector<OutputRange>* ranges = std::exchange(future->output_ranges, nullptr);
  if (ranges == nullptr) return;
  for (const OutputRange& range : *ranges) Py_DECREF(range.outputs);
  delete ranges;
}

void note_delivery(FutureObject* future) {
  if (future->fork_generation != fork_generation()) return;
  {
    const Locked lock(future);
    if (std::exchange(future->delivered, true)) return;
  }
  std::atomic<bool>& answered = future->engine->answered;
  if (!answered && future->request->outcome != Outcome::kExpired) answered = true;
  future->engine->engine->delivered(*future->request, Clock::now());
}

PyObject* member_of(FutureObject* future, PyObject* FutureObject::* member) {
  const Locked lock(future);
  return Py_XNewRef(future->*member);
}

bool settle(FutureObject* future) {
  return future->call == nullptr || !future->call->has_result() || future->engine->backend->settle(future);
}

namespace {

// Takes the request from under the key. False with an exception set, which a method of the key raised.
bool remove_live(FutureObject* future, PyObject* live, PyObject* key) {
  PyObject* self = reinterpret_cast<PyObject*>(future);
  PyObject* found = nullptr;
  bool removed;
  {
    const Locked lock(future->engine);
    removed = find_item(live, key, found) && (found != self || PyDict_DelItem(live, key) == 0);
  }
  Py_XDECREF(found);
  return removed;
}

}  // namespace

void leave(FutureObject* future, PyObject* live, PyObject* key) {
  if (future->callers.fetch_sub(1) != 1) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  bool removed = key == Py_None || remove_live(future, live, key);
  if (!removed && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    PyErr_Clear();
    removed = remove_live(future, live, key);
    PyErr_SetInterrupt();  // the main thread gets it once this call is done
  }
  if (!removed) PyErr_WriteUnraisable(key);
  PyErr_Restore(type, value, traceback);
  end_future(future, Outcome::kCancelled, true);
}

PyObject* take_result(FutureObject* future) {
  const Request& request = *future->request;
  note_delivery(future);
  if (!settle(future)) return nullptr;
  if (PyObject* exception = member_of(future, &FutureObject::exception)) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
    Py_DECREF(exception);
    return nullptr;
  }
  switch (request.outcome) {
    case Outcome::kAnswered:
      return value_in_order(future);
    case Outcome::kExpired:
      return raise_expired(future);
    case Outcome::kCancelled: {
      PyObject* error = python::cancelled_error();
      if (error != nullptr) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
      Py_XDECREF(error);
      return nullptr;
    }
    case Outcome::kClosed:
      if (future->fork_generation != fork_generation()) {
        return raise_message(
            python::streamer_closed,
            "this request was made before the fork, so its answer is in the parent process: send it again here");
      }
      return raise_dropped(future);
    case Outcome::kRefused:
      return raise_refused(request);
    case Outcome::kNone:
    case Outcome::kFailed:
    case Outcome::kLost:
      break;
  }
  future->engine->backend->raise_loss(future);
  return nullptr;
}

PyObject* raise_refused(const Request& request) {
  PyObject* message = PyUnicode_FromFormat("the request of %s would not be answered within the streamer's slo",
                                           items_text(request.size).text);
  return raise_error(python::queue_full,
                     message != nullptr ? Py_BuildValue("(Nd)", message, double{request.retry_after}) : nullptr);
}

void end_future(FutureObject* future, Outcome outcome, bool even_if_running) {
  if (is_done(future)) return;
  EndedRequests ended;
  future->engine->engine->end_early(*future->request, outcome, even_if_running, ended);
  future->engine->backend->publish(ended);
}

}  // namespace service_streamer::bindings
