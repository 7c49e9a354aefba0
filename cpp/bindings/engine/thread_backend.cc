#include "bindings/engine/thread_backend.h"

#include "bindings/futures/callbacks.h"
#include "bindings/futures/engine_object.h"
#include "bindings/futures/future.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/free_threading.h"

namespace service_streamer::bindings {
namespace {

// No worker has items of it any more: its items, and outputs that came too late, go even if the future is kept.
void release(Request& request) {
  FutureObject* future = future_of(request);
  Py_CLEAR(future->items);
  Py_CLEAR(future->outputs);
  if (request.outcome != Outcome::kAnswered) Py_CLEAR(future->value);
  drop_output_ranges(future);
  Py_DECREF(reinterpret_cast<PyObject*>(future));
}

// True if publishing its end runs no code of the user: no callback, and no finaliser of a future that is dropped.
bool ends_quietly(FutureObject* future) {
  return future->callbacks == nullptr && future->condition == nullptr &&
         Py_REFCNT(reinterpret_cast<PyObject*>(future)) > 1;
}

void call_hook(PyObject* hook) {
  PyObject* none = PyObject_CallNoArgs(hook);
  if (none == nullptr && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    PyErr_Clear();
    PyErr_SetInterrupt();  // the main thread gets it once this thread is done
  } else if (none == nullptr) {
    PyErr_WriteUnraisable(hook);
  }
  Py_XDECREF(none);
}

}  // namespace

// For single outputs the caller makes the result list here, with the items in it until they are replaced. If the worker
// made the lists, garbage collection would become due between two batches.
FutureObject* ThreadBackend::make_request(PyTypeObject* type, EngineObject* engine, PyObject* batch) {
  PyObject* items = engine->output_batch ? items_from(batch) : item_list_from(batch);
  FutureObject* future = items != nullptr ? make_future(type, engine, PySequence_Fast_GET_SIZE(items)) : nullptr;
  if (future == nullptr) {
    Py_XDECREF(items);
    return nullptr;
  }
  (engine->output_batch ? future->items : future->value) = items;
  return future;
}

void ThreadBackend::publish(EndedRequests& ended) {
  publish_ended(ended, nullptr);
}

void publish_ended(EndedRequests& ended, DeferredWake* later) {
  if (ended.count == 0) return;
  // Without a GIL the caller has nothing to wait for.
  const bool deferred = kHasGil && later != nullptr && ended.count == 1 && ends_quietly(future_of(*ended.first));
  const int batons = future_of(*ended.first)->engine->engine->answers_fast() ? 2 : 1;
  WakeQueue& queue = WakeQueue::instance();
  EndedRequests in_order;
  while (Request* request = ended.pop()) in_order.push(*request);
  for (Request* request = in_order.first; request != nullptr; request = request->next_ended) {
    FutureObject* future = future_of(*request);
    queue.publish(request->completion);
    if (!kHasGil || !future->observers->empty()) future->observers->notify();  // attach() has the GIL, too
  }
  deferred ? later->defer() : queue.wake(batons);
  // The caller may have an exception set, which the callbacks must neither see nor replace.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject* ended_early = Py_XNewRef(future_of(*in_order.first)->engine->ended_early);  // the engine may go with them
  bool worker_has_items = false;
  while (Request* request = in_order.pop()) {
    follow_up(future_of(*request));
    if (request->drop_hold()) {
      release(*request);
    } else {
      worker_has_items = true;
    }
  }
  if (ended_early != nullptr && worker_has_items) call_hook(ended_early);
  Py_XDECREF(ended_early);
  PyErr_Restore(type, value, traceback);
}

PyObject* ThreadBackend::obstacle(const FutureObject* future) const {
  if (future->engine->answered) return PyUnicode_FromString("");
  PyObject* reason = python::import_obstacle();
  if (reason != nullptr || !PyErr_ExceptionMatches(PyExc_Exception)) return reason;
  PyErr_Clear();  // the request has timed out all the same
  return PyUnicode_FromString("");
}

void ThreadBackend::let_go(ReleasedRequests& released) {
  while (Request* request = released.pop()) release(*request);
}

}  // namespace service_streamer::bindings
