#include <Python.h>

#include <utility>

#include "bindings/engine/engine.h"
#include "bindings/futures/future.h"
#include "bindings/native/native_model.h"
#include "bindings/pickling/codec.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/waiting.h"
#include "service_streamer/calls/serialized_call.h"
#include "service_streamer/native/tensor_call.h"
#include "service_streamer/server/server.h"

// What callers of an engine meet: predict and submit.

namespace service_streamer::bindings {
namespace {

// Who waits for the answer, and so who ends the request when its deadline passes.
enum class Caller { kPredict, kSubmit };

// A request for worker processes, with its items pickled; steals them. nullptr with an exception set.
FutureObject* make_call(PyTypeObject* type, EngineObject* self, PyObject* items) {
  ipc::LocalCall* call = nullptr;
  bool encoded = false;
  if (self->engine->closed()) {
    raise_message("StreamerClosed", "the streamer is closed");
  } else {
    const CaughtError failure = attempt([&] { call = new ipc::LocalCall; });
    encoded = !failure.raise() && encode_items(items, call->payload, self->inline_items);
  }
  const auto size = static_cast<std::uint32_t>(PyTuple_GET_SIZE(items));
  Py_DECREF(items);
  if (!encoded) {
    if (call != nullptr) call->unref();
    return nullptr;
  }
  call->request.size = size;
  return make_future(type, self, call, &call->observers);
}

// A request for a native model, which reads its items; steals them. nullptr with an exception set.
FutureObject* make_native_call(PyTypeObject* type, EngineObject* self, PyObject* items) {
  native::TensorCall* call = nullptr;
  if (self->engine->closed()) {
    raise_message("StreamerClosed", "the streamer is closed");
  } else if (native::ItemsRef read = self->native->read(items)) {
    const auto size = static_cast<std::uint32_t>(PyTuple_GET_SIZE(items));
    attempt([&] { call = new native::TensorCall(std::move(read), size); }).raise();
  }
  Py_DECREF(items);
  return call != nullptr ? make_future(type, self, call, &call->observers) : nullptr;
}

// A request for Python threads; nullptr with an exception set. Callers who get single outputs bring the list for them along, in which
// their items are until then. Made by the worker, many lists at a time, it would often be there that Python's garbage collection is
// due, between two batches; made besides one of the items, it would be due half as often again.
FutureObject* make_own(PyTypeObject* type, EngineObject* self, PyObject* batch) {
  PyObject* items = self->output_batch ? items_from(batch) : item_list_from(batch);
  FutureObject* future = items != nullptr ? make_future(type, self, PySequence_Fast_GET_SIZE(items)) : nullptr;
  if (future == nullptr) {
    Py_XDECREF(items);
    return nullptr;
  }
  (self->output_batch ? future->items : future->value) = items;
  return future;
}

// A request that others than Python threads answer, unless it has no items; nullptr with an exception set.
FutureObject* make_travelling(PyTypeObject* type, EngineObject* self, PyObject* batch) {
  PyObject* items = items_from(batch);
  if (items == nullptr) return nullptr;
  if (PyTuple_GET_SIZE(items) > 0) {
    return self->remote ? make_call(type, self, items) : make_native_call(type, self, items);
  }
  Py_DECREF(items);
  return make_future(type, self, 0);
}

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
  PyTypeObject* type =
      caller == Caller::kPredict ? future_base_type : reinterpret_cast<PyTypeObject*>(self->future_type);
  FutureObject* future = self->has_calls() ? make_travelling(type, self, args[0]) : make_own(type, self, args[0]);
  if (future == nullptr) return nullptr;
  future->request->deadline = deadline;
  future->request->priority = priority;
  // A timer for each greenlet's deadline would cost more than the rest of the call.
  future->request->watched = caller == Caller::kPredict && !gevent_is_loaded();
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
  if (future->value == nullptr) future->value = PyList_New(0);
  if (future->value == nullptr) return false;
  future->request->outcome = Outcome::kAnswered;
  future->request->arrived = future->request->ended = Clock::now();
  future->request->completion.finish();
  Py_CLEAR(future->items);
  return true;
}

// A reference of the engine's, which goes with the request's last hold.
void hold(FutureObject* future) {
  future->call != nullptr ? future->call->ref() : Py_INCREF(reinterpret_cast<PyObject*>(future));
}

void drop(FutureObject* future) {
  future->call != nullptr ? future->call->unref() : Py_DECREF(reinterpret_cast<PyObject*>(future));
}

// Hands the request to the engine; false with an exception set. `waiting`: it waits for room in the queue.
bool enqueue(EngineObject* self, FutureObject* future, bool& waiting) {
  waiting = false;
  if (self->engine->closed()) {
    raise_message("StreamerClosed", "the streamer is closed");
    return false;
  }
  if (future->request->size == 0) return answer_empty(future);
  // First, for a hook may give up the GIL: from where the workers are known to be there it is kept until the request is queued.
  if (!future->request->watched && future->request->deadline != TimePoint::max() &&
      !call_once(self->timer_started, self->start_timer)) {
    return false;
  }
  if (!call_once(self->started, self->start)) {
    // Others may have queued up meanwhile, trusting in the workers that could not be started.
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    EndedRequests lost;
    self->engine->abort(Outcome::kLost, lost);
    publish(self, lost);
    PyErr_Restore(type, value, traceback);
    return false;
  }
  hold(future);
  const Engine::Admission admission = self->engine->submit(*future->request);
  switch (admission) {
    case Engine::Admission::kQueued:
    case Engine::Admission::kWaiting:
      waiting = admission == Engine::Admission::kWaiting;
      if (self->server != nullptr) self->server->check_failure(*future->request);
      return true;
    case Engine::Admission::kClosed:
      raise_message("StreamerClosed", "the streamer is closed");
      break;
    case Engine::Admission::kFull: {
      const double seconds = self->engine->retry_after();
      PyObject* message =
          PyUnicode_FromFormat("the queue has no room for %u more items (max_queue=%zu)",
                               static_cast<unsigned>(future->request->size), self->engine->options().max_queue);
      raise_error("QueueFull", message != nullptr ? Py_BuildValue("(Nd)", message, seconds) : nullptr);
      break;
    }
  }
  drop(future);
  return false;
}

// Whether this thread runs an event loop, which must not be blocked: the request then waits for room by itself.
bool in_event_loop() {
  PyObject* answer = call_helper("service_streamer._waiting.greenlets", "in_event_loop", nullptr);
  if (answer == nullptr) PyErr_WriteUnraisable(nullptr);
  const bool running = answer == Py_True;
  Py_XDECREF(answer);
  return running;
}

// Blocks until the request is in the queue or ended; false with a signal handler's exception set.
bool wait_for_room(EngineObject* self, FutureObject* future) {
  Request& request = *future->request;
  const int admitted =
      wait_without_gil([&](Waiter& waiter) { return self->engine->wait_for_room(request, waiter, request.deadline); });
  if (admitted == 0) end_future(future, Outcome::kExpired, true);
  return admitted >= 0;
}

PyObject* submit(PyObject* object, PyObject* const* args, Py_ssize_t nargs, bool may_block) {
  EngineObject* self = reinterpret_cast<EngineObject*>(object);
  FutureObject* future = read_request(self, args, nargs, Caller::kSubmit);
  if (future == nullptr) return nullptr;
  bool waiting;
  bool accepted = enqueue(self, future, waiting);
  if (accepted && waiting && may_block && !is_worker_of(self) && !in_event_loop()) {
    accepted = wait_for_room(self, future);
    if (!accepted) {
      end_future(future, Outcome::kCancelled, true);
    } else if (future->request->outcome == Outcome::kClosed || future->request->outcome == Outcome::kExpired) {
      accepted = false;  // it never got in; who ended it may be about to publish that
      if (wait_for_future(future, TimePoint::max()) == 1) take_result(future);
    }
  }
  if (accepted) return reinterpret_cast<PyObject*>(future);
  Py_DECREF(reinterpret_cast<PyObject*>(future));
  return nullptr;
}

}  // namespace

PyObject* engine_predict(PyObject* object, PyObject* const* args, Py_ssize_t nargs) {
  EngineObject* self = reinterpret_cast<EngineObject*>(object);
  FutureObject* future = read_request(self, args, nargs, Caller::kPredict);
  if (future == nullptr) return nullptr;
  bool waiting;
  PyObject* result = nullptr;
  if (enqueue(self, future, waiting)) {
    const int done = wait_for_future(future, future->request->deadline);
    if (done < 0) {
      end_future(future, Outcome::kCancelled, true);
    } else {
      // Too late: it ends here, unless its answer is on the way in this very moment.
      if (done == 0) end_future(future, Outcome::kExpired, true);
      if (wait_for_future(future, TimePoint::max()) == 1) result = take_result(future);
    }
  }
  Py_DECREF(reinterpret_cast<PyObject*>(future));
  return result;
}

PyObject* engine_submit(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  return submit(self, args, nargs, true);
}

PyObject* engine_submit_async(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  return submit(self, args, nargs, false);
}

}  // namespace service_streamer::bindings
