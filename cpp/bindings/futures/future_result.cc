#include <Python.h>

#include <utility>

#include "bindings/futures/engine_object.h"
#include "bindings/futures/future.h"
#include "bindings/futures/greenlets.h"
#include "bindings/python/errors.h"
#include "bindings/python/libraries.h"
#include "bindings/python/texts.h"

// Waiting for the end of a request, and its result as a Python object or exception.

namespace service_streamer::bindings {
namespace {

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

// Puts the outputs into the caller's order, once. False with an exception set.
bool put_in_order(FutureObject* future) {
  if (future->order == nullptr) return true;
  PyObject* order = Py_NewRef(future->order);
  PyObject* outputs = Py_NewRef(future->value);
  PyObject* sorted = python::in_order(outputs, order);
  if (sorted != nullptr && future->order != nullptr) {  // else another thread was first
    Py_CLEAR(future->order);
    Py_SETREF(future->value, Py_NewRef(sorted));
  }
  Py_DECREF(order);
  Py_DECREF(outputs);
  Py_XDECREF(sorted);
  return sorted != nullptr;
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

}  // namespace

PyObject* raise_refused(const Request& request) {
  PyObject* message = PyUnicode_FromFormat("the request of %s would not be answered within the streamer's slo",
                                           items_text(request.size).text);
  return raise_error(python::queue_full,
                     message != nullptr ? Py_BuildValue("(Nd)", message, double{request.retry_after}) : nullptr);
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

void note_delivery(FutureObject* future) {
  if (future->delivered || future->fork_generation != fork_generation()) return;
  future->delivered = true;
  future->engine->answered |= future->request->outcome != Outcome::kExpired;
  future->engine->engine->delivered(*future->request, Clock::now());
}

int wait_for_future(FutureObject* future, TimePoint deadline, WorkerWake worker) {
  const bool serves = served_engine() == future->engine;
  PyObject* running_loop = loop_finder(deadline);
  // The worker is woken before Python code runs here.
  if (serves || running_loop != nullptr || gevent_is_loaded() || is_done(future)) std::exchange(worker, {}).run();
  if (is_done(future)) return 1;
  if (serves) {
    raise_mistake(PyExc_RuntimeError, "predict-inside-predict_function",
                  "this thread runs predict_function (or a done callback) of the streamer that it asks, so it would "
                  "wait for itself: call the model directly, or use submit() and add_done_callback()");
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
    if (!std::exchange(engine->looked, true)) {  // one thread of those that wait
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

PyObject* future_timing(PyObject* self, PyObject*) {
  auto* future = reinterpret_cast<FutureObject*>(self);
  if (!is_done(future)) Py_RETURN_NONE;
  const Request& request = *future->request;
  // In a forked child, a request of the parent may have been taken, but has no end.
  if (request.batch_items == 0 || request.ended < request.taken) Py_RETURN_NONE;
  return Py_BuildValue("(ddIs)", seconds(request.taken - request.arrived), seconds(request.ended - request.taken),
                       request.batch_items, to_string(request.reason));
}

PyObject* future_ended(PyObject* self, PyObject*) {
  auto* future = reinterpret_cast<FutureObject*>(self);
  if (!is_done(future)) Py_RETURN_NONE;
  const Request& request = *future->request;
  // In a forked child, a request of the parent has no time of its end.
  const Duration since = request.ended != TimePoint{} ? Clock::now() - request.ended : Duration::zero();
  return Py_BuildValue("(sd)", counter_of(request.outcome).name, seconds(since));
}

PyObject* future_batches(PyObject* self, PyObject*) {
  auto* future = reinterpret_cast<FutureObject*>(self);
  // In a forked child, the threads of the parent may have held the locks of its calls.
  if (future->fork_generation != fork_generation()) return PyList_New(0);
  return future->engine->backend->take_batches(future);
}

void end_future(FutureObject* future, Outcome outcome, bool even_if_running) {
  if (is_done(future)) return;
  EndedRequests ended;
  future->engine->engine->end_early(*future->request, outcome, even_if_running, ended);
  future->engine->backend->publish(ended);
}

bool settle(FutureObject* future) {
  if (future->call == nullptr || future->value != nullptr || future->exception != nullptr) return true;
  if (!future->call->has_result()) return true;
  return future->engine->backend->settle(future);
}

PyObject* take_result(FutureObject* future) {
  const Request& request = *future->request;
  note_delivery(future);
  if (!settle(future)) return nullptr;
  if (future->exception != nullptr) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(future->exception)), future->exception);
    return nullptr;
  }
  switch (request.outcome) {
    case Outcome::kAnswered:
      return put_in_order(future) ? Py_NewRef(future->value) : nullptr;
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

}  // namespace service_streamer::bindings
