// The methods of an engine for its callers: predict and submit.

#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "bindings/engine/engine.h"
#include "bindings/futures/engine_object.h"
#include "bindings/futures/future.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/free_threading.h"
#include "bindings/python/libraries.h"
#include "bindings/python/texts.h"
#include "bindings/python/waiting.h"

namespace service_streamer::bindings {
namespace {

// predict() watches the deadline of its request itself; submit() leaves it to a timer; share() has none.
enum class Caller { kPredict, kSubmit, kShare };

// Takes the trace context from bytes, or None. False with an exception set.
bool context_from(PyObject* value, TraceContext& context) {
  if (value == Py_None) return true;
  char* bytes;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(value, &bytes, &size) < 0) return false;
  if (size < 1 || static_cast<std::size_t>(size) > kMaxTraceContext) {
    PyErr_Format(PyExc_ValueError, "a trace context has 1 to %zu bytes, got %zd", kMaxTraceContext, size);
    return false;
  }
  const auto copy = [&] { context = std::make_shared<const std::string>(bytes, static_cast<std::size_t>(size)); };
  return !attempt(copy).raise();
}

// Replaces the batch by its items in the order of the hook `group`, and gets their traits from it. False with an
// exception set.
bool group_items(EngineObject* self, PyObject*& batch, PyObject*& traits) {
  PyObject* items = items_from(batch);
  PyObject* grouped = items != nullptr ? PyObject_CallOneArg(self->group, items) : nullptr;
  Py_XDECREF(items);
  PyObject *ordered, *own;
  const bool done = grouped != nullptr && PyArg_ParseTuple(grouped, "OO", &ordered, &own);
  if (done) {
    Py_SETREF(batch, Py_NewRef(ordered));
    Py_SETREF(traits, Py_NewRef(own));
  }
  Py_XDECREF(grouped);
  return done;
}

// Gives the request its traits and its tenant. False with an exception set.
bool set_traits(EngineObject* self, FutureObject* future, PyObject* traits, PyObject* tenant) {
  Request& request = *future->request;
  if (!traits_from(traits, tenant, request.size, request.traits, future->order)) return false;
  if (tenant == Py_None || self->engine->knows_tenant(request)) return true;
  raise_unknown_tenant(tenant);
  return false;
}

// Reads the arguments of a call and makes its request; nullptr with an exception set.
FutureObject* read_request(EngineObject* self, PyObject* const* args, Py_ssize_t nargs, Caller caller) {
  if (nargs < 3 || nargs > (caller == Caller::kPredict ? 4 : 6)) {
    PyErr_SetString(PyExc_TypeError,
                    "the arguments are batch, timeout, priority and tenant; for submit also context and admitted");
    return nullptr;
  }
  if (!from_this_process(self)) return nullptr;
  TimePoint deadline;
  int priority;
  if (!deadline_from(args[1], deadline) || !priority_from(args[2], priority)) return nullptr;
  PyTypeObject* type =
      caller == Caller::kSubmit ? reinterpret_cast<PyTypeObject*>(self->future_type) : future_base_type;
  PyObject* batch = Py_NewRef(args[0]);
  PyObject* traits = Py_NewRef(Py_None);
  FutureObject* future = nullptr;
  if (self->group == nullptr || group_items(self, batch, traits)) {
    future = self->backend->make_request(type, self, batch);
  }
  PyObject* tenant = nargs > 3 ? args[3] : Py_None;
  const bool has_traits = traits != Py_None || tenant != Py_None;
  if (future != nullptr && has_traits && !set_traits(self, future, traits, tenant)) Py_CLEAR(future);
  Py_DECREF(batch);
  Py_DECREF(traits);
  if (future == nullptr) return nullptr;
  Request& request = *future->request;
  request.deadline = deadline;
  request.priority = priority;
  // Under gevent the timer thread watches the deadline: a timer of the hub would cost more than the rest of the call.
  request.watched = caller == Caller::kPredict && !gevent_is_loaded();
  if (nargs > 4 && !context_from(args[4], request.context)) {
    Py_DECREF(reinterpret_cast<PyObject*>(future));
    return nullptr;
  }
  return future;
}

bool call_once(std::atomic<bool>& called, PyObject* hook) {
  if (called || called.exchange(true)) return true;
  PyObject* none = PyObject_CallNoArgs(hook);
  if (none == nullptr) called = false;
  Py_XDECREF(none);
  return none != nullptr;
}

// Puts the functions from `begin` on back, with an exception set, which stays. Without memory they are lost.
void keep_for_next_request(EngineObject* self, PyObject* functions, Py_ssize_t begin) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject* kept = PyList_GetSlice(functions, begin, PyList_GET_SIZE(functions));
  PyObject* later = nullptr;
  if (kept != nullptr) {
    const Locked lock(self);
    later = self->next_request.exchange(kept);
    if (later != nullptr) PyList_SetSlice(kept, PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, later);
  }
  Py_XDECREF(later);
  PyErr_Restore(type, value, traceback);
}

// Calls the functions of call_at_next_request(). What one raises is no fault of the caller; false: a Ctrl-C is for it.
bool call_waiting_functions(EngineObject* self) {
  PyObject* functions = nullptr;
  {
    const Locked lock(self);
    functions = self->next_request.exchange(nullptr);
  }
  if (functions == nullptr) return true;
  bool interrupted = false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(functions) && !interrupted; ++i) {
    PyObject* none = PyObject_CallNoArgs(PyList_GET_ITEM(functions, i));
    interrupted = none == nullptr && !PyErr_ExceptionMatches(PyExc_Exception);
    if (none == nullptr && !interrupted) PyErr_WriteUnraisable(PyList_GET_ITEM(functions, i));
    Py_XDECREF(none);
    if (interrupted) keep_for_next_request(self, functions, i + 1);
  }
  Py_DECREF(functions);
  return !interrupted;
}

// Starts the workers, unless they have been started. False with an exception set.
bool start_workers(EngineObject* self) {
  if (call_once(self->started, self->start)) return true;
  // Other threads may have queued requests meanwhile, which no worker will take now.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  EndedRequests lost;
  self->engine->abort(Outcome::kLost, lost);
  self->backend->publish(lost);
  PyErr_Restore(type, value, traceback);
  return false;
}

// Calls the hooks that a request needs. They may release the GIL. False with an exception set.
bool call_hooks(EngineObject* self, const Request& request) {
  if (self->next_request != nullptr && !call_waiting_functions(self)) return false;
  const bool has_deadline = !request.watched && request.deadline != TimePoint::max();
  if ((has_deadline || self->engine->deadline_timer().has_target()) &&
      !call_once(self->timer_started, self->start_timer))
    return false;
  return start_workers(self);
}

// Answers a request that has no items.
bool answer_empty(FutureObject* future) {
  if (future->value == nullptr) future->value = PyList_New(0);
  if (future->value == nullptr) return false;
  future->request->outcome = Outcome::kAnswered;
  future->request->arrived = future->request->ended = Clock::now();
  future->request->completion.finish();
  Py_CLEAR(future->items);
  return true;
}

// The engine's reference. Backend::publish() or let_go() drops it, unless the engine refuses the request.
void hold(FutureObject* future) {
  future->call != nullptr ? future->call->ref() : Py_INCREF(reinterpret_cast<PyObject*>(future));
}

void drop(FutureObject* future) {
  future->call != nullptr ? future->call->unref() : Py_DECREF(reinterpret_cast<PyObject*>(future));
}

// PyUnicode_FromFormat has no floats.
PyObject* weight_message(double weight, double most) {
  std::array<char, 160> text;
  std::snprintf(text.data(), text.size(), "the queue has no room for a weight of %g more (max_queue_weight=%g)", weight,
                most);
  return PyUnicode_FromString(text.data());
}

void raise_full(EngineObject* self, const Request& request, Engine::Admission admission) {
  const double seconds = self->engine->retry_after(request);
  const EngineOptions options = self->engine->options();
  PyObject* message = nullptr;
  if (admission == Engine::Admission::kFull) {
    message = PyUnicode_FromFormat("the queue has no room for %s (max_queue=%zu)",
                                   items_text(request.size, "more ").text, options.max_queue);
  } else if (admission == Engine::Admission::kWeightFull) {
    message = weight_message(request.queued_weight, options.max_queue_weight);
  } else {
    const std::string name(request.tenant());
    message = PyUnicode_FromFormat("the queue has no room for %s of tenant '%s' (max_queue_per_tenant=%zu)",
                                   items_text(request.size, "more ").text, name.c_str(), options.max_queue_per_tenant);
  }
  raise_error(python::queue_full, message != nullptr ? Py_BuildValue("(Nd)", message, seconds) : nullptr);
}

// A wake-up of a worker that is put off until the caller waits. If the caller does not wait, it comes at the end.
class PutOffWake {
 public:
  PutOffWake() = default;
  PutOffWake(const PutOffWake&) = delete;
  PutOffWake& operator=(const PutOffWake&) = delete;
  ~PutOffWake() { worker.run(); }

  WorkerWake take() { return std::exchange(worker, {}); }

  WorkerWake worker;
};

// Submits the request to the engine; false with an exception set. `waiting` tells whether it waits for room in the
// queue, as one does that is `admitted` already.
bool enqueue(EngineObject* self, FutureObject* future, bool& waiting, WorkerWake* later = nullptr,
             bool admitted = false) {
  waiting = false;
  if (self->engine->closed()) {
    self->backend->raise_closed();
    return false;
  }
  if (future->request->size == 0) return answer_empty(future);
  // The hooks come first. With a GIL, it is held from here, where the workers exist, until the request is queued.
  if (!call_hooks(self, *future->request)) return false;
  hold(future);
  Engine::Admission admission{};
  const auto submit = [&] {
    Engine& engine = *self->engine;
    admission = admitted ? engine.submit_accepted(*future->request) : engine.submit(*future->request, later);
  };
  if (attempt(submit).raise()) {
    drop(future);
    return false;
  }
  switch (admission) {
    case Engine::Admission::kQueued:
    case Engine::Admission::kWaiting:
      waiting = admission == Engine::Admission::kWaiting;
      self->backend->submitted(*future->request);
      // Without a GIL the start of another caller may have failed after call_hooks(), and ended what was queued then.
      return kHasGil || start_workers(self);
    case Engine::Admission::kClosed:
      self->backend->raise_closed();
      break;
    case Engine::Admission::kFull:
    case Engine::Admission::kTenantFull:
    case Engine::Admission::kWeightFull:
      if (future->request->retry_after > 0) {
        EndedRequests hopeless;
        self->engine->end_hopeless(hopeless);
        self->backend->publish(hopeless);
        raise_refused(*future->request);
      } else {
        raise_full(self, *future->request, admission);
      }
      break;
  }
  drop(future);
  return false;
}

// Whether this thread runs an event loop. It must not be blocked: there the future waits for room, not the thread.
bool in_event_loop() {
  PyObject* answer = python::in_event_loop();
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
  const int admitted = nargs > 5 ? PyObject_IsTrue(args[5]) : 0;
  bool waiting;
  bool accepted = admitted >= 0 && enqueue(self, future, waiting, nullptr, admitted == 1);
  if (accepted && waiting && may_block && served_engine() != self && !in_event_loop()) {
    accepted = wait_for_room(self, future);
    if (!accepted) {
      end_future(future, Outcome::kCancelled, true);
    } else if (const Outcome end = self->engine->outcome(*future->request);
               end == Outcome::kClosed || end == Outcome::kExpired) {
      accepted = false;  // it was never queued; the thread that ended it may not have published that yet
      if (wait_for_future(future, TimePoint::max()) == 1) take_result(future);
    }
  }
  if (accepted) return reinterpret_cast<PyObject*>(future);
  Py_DECREF(reinterpret_cast<PyObject*>(future));
  return nullptr;
}

// --- requests that callers share ---

// The arguments of share(), borrowed.
struct Shared {
  std::array<PyObject*, 5> request;  // as for submit_async, with no timeout
  PyObject* live;
  PyObject* key;
  bool admitted = false;
  WorkerWake* later = nullptr;
  bool sent = false;  // set by share(): the request is that of this call
};

// Raises what a request with this priority and tenant would raise.
bool check(PyObject* engine, const Shared& shared) {
  std::array<PyObject*, 5> request = shared.request;
  request[0] = PyTuple_New(0);  // there is one, and it is never made
  PyObject* future = submit(engine, request.data(), request.size(), false);
  Py_XDECREF(future);
  Py_DECREF(request[0]);
  return future != nullptr;
}

// Finds the request under the key: a new reference, or nullptr. False with an exception set.
bool find_live(const Shared& shared, FutureObject*& found) {
  PyObject* value = nullptr;
  if (shared.key != Py_None && !find_item(shared.live, shared.key, value)) return false;
  found = reinterpret_cast<FutureObject*>(value);
  return true;
}

// Makes the caller one of those of the request; false: it has none any more, so it ends.
bool take_part(FutureObject* future) {
  std::uint32_t callers = future->callers;
  while (callers != 0 && !future->callers.compare_exchange_weak(callers, callers + 1)) {
  }
  return callers != 0;
}

// Submits the request and puts it under the key, unless one that may be joined came there meanwhile: `future` becomes
// that. `passed`: one that is not to be joined. False with an exception set.
bool join_or_submit(EngineObject* self, FutureObject*& future, const FutureObject* passed, Shared& shared) {
  const Locked lock(self);
  FutureObject* other = nullptr;
  if (!find_live(shared, other)) return false;
  shared.sent = other == nullptr || other == passed || is_done(other) ||
                future->request->priority > other->request->priority || !take_part(other);
  if (!shared.sent) std::swap(future, other);
  Py_XDECREF(reinterpret_cast<PyObject*>(other));
  if (!shared.sent) return true;
  bool waiting;
  future->callers = 1;
  if (!enqueue(self, future, waiting, shared.later, shared.admitted)) return false;
  if (shared.key == Py_None || PyDict_SetItem(shared.live, shared.key, reinterpret_cast<PyObject*>(future)) == 0) {
    return true;
  }
  end_future(future, Outcome::kCancelled, true);
  return false;
}

// The request that `live` has under the key, or a new one: a new reference, in which the caller has a part; nullptr
// with an exception set. What may run Python code comes first, so that the lookup and the submit are one step (unless
// the keys are compared by Python code).
FutureObject* share(EngineObject* self, Shared& shared) {
  int priority;
  if (!priority_from(shared.request[2], priority)) return nullptr;
  FutureObject* found = nullptr;
  if (!find_live(shared, found)) return nullptr;
  if (found != nullptr && !is_done(found)) {
    // A request of a higher priority does not wait behind the others in the queue.
    const int running = priority > found->request->priority ? self->backend->query_running(found) : 1;
    if (running == 1 && check(reinterpret_cast<PyObject*>(self), shared) && take_part(found)) return found;
  }
  FutureObject* future = nullptr;
  if (PyErr_Occurred() == nullptr) future = read_request(self, shared.request.data(), 5, Caller::kShare);
  const bool done = future != nullptr && (self->engine->closed() || call_hooks(self, *future->request)) &&
                    join_or_submit(self, future, found, shared);
  Py_XDECREF(reinterpret_cast<PyObject*>(found));
  if (!done) Py_CLEAR(future);
  return future;
}

PyObject* with_sent(FutureObject* future, const Shared& shared) {
  PyObject* pair = PyTuple_Pack(2, reinterpret_cast<PyObject*>(future), shared.sent ? Py_True : Py_False);
  if (pair == nullptr) leave(future, shared.live, shared.key);
  Py_DECREF(reinterpret_cast<PyObject*>(future));
  return pair;
}

}  // namespace

PyObject* engine_predict(PyObject* object, PyObject* const* args, Py_ssize_t nargs) {
  EngineObject* self = reinterpret_cast<EngineObject*>(object);
  FutureObject* future = read_request(self, args, nargs, Caller::kPredict);
  if (future == nullptr) return nullptr;
  bool waiting;
  PyObject* result = nullptr;
  PutOffWake wake;
  const bool lone = self->engine->requests() == 0 && self->backend->wakes_worker_late();
  if (enqueue(self, future, waiting, lone ? &wake.worker : nullptr)) {
    const int done = wait_for_future(future, future->request->deadline, wake.take());
    if (done < 0) {
      end_future(future, Outcome::kCancelled, true);
    } else {
      // The deadline passed: end the request, unless a worker is answering it right now.
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

PyObject* engine_share(PyObject* object, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs != 7 || !PyBool_Check(args[4]) || !PyDict_CheckExact(args[5])) {
    PyErr_SetString(PyExc_TypeError, "the arguments are batch, priority, tenant, context, admitted, live and key");
    return nullptr;
  }
  Shared shared{.request = {args[0], Py_None, args[1], args[2], args[3]},
                .live = args[5],
                .key = args[6],
                .admitted = args[4] == Py_True};
  FutureObject* future = share(reinterpret_cast<EngineObject*>(object), shared);
  return future != nullptr ? with_sent(future, shared) : nullptr;
}

PyObject* engine_predict_shared(PyObject* object, PyObject* const* args, Py_ssize_t nargs) {
  EngineObject* self = reinterpret_cast<EngineObject*>(object);
  if (nargs != 6 || !PyDict_CheckExact(args[4])) {
    PyErr_SetString(PyExc_TypeError, "the arguments are batch, timeout, priority, tenant, live and key");
    return nullptr;
  }
  TimePoint deadline;
  if (!deadline_from(args[1], deadline)) return nullptr;
  PutOffWake wake;  // also for a request that is queued, and taken back because its key raised
  const bool lone = self->engine->requests() == 0 && self->backend->wakes_worker_late();
  Shared shared{.request = {args[0], Py_None, args[2], args[3], Py_None},
                .live = args[4],
                .key = args[5],
                .later = lone ? &wake.worker : nullptr};
  FutureObject* future = share(self, shared);
  if (future == nullptr) return nullptr;
  if (!shared.sent) return with_sent(future, shared);
  const int done = wait_for_future(future, deadline, wake.take());
  PyObject* outputs = nullptr;
  if (done == 1 && future->request->outcome == Outcome::kAnswered) {
    outputs = take_result(future);
    if (outputs != nullptr) Py_SETREF(outputs, PySequence_List(outputs));  // other callers get the same value
    if (outputs == nullptr && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();  // exception() has it
  }
  if (outputs == nullptr && PyErr_Occurred() == nullptr) return with_sent(future, shared);
  leave(future, shared.live, shared.key);
  Py_DECREF(reinterpret_cast<PyObject*>(future));
  return outputs;
}

}  // namespace service_streamer::bindings
