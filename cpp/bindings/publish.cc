#include <Python.h>

#include "bindings/engine.h"
#include "bindings/errors.h"
#include "bindings/future.h"
#include "bindings/mailbox.h"

namespace service_streamer::bindings {
namespace {

void run_callback(PyObject* callback, PyObject* future) {
  if (PyTuple_CheckExact(callback)) {
    post(PyTuple_GET_ITEM(callback, 0), PyTuple_GET_ITEM(callback, 1));
    return;
  }
  PyObject* none = call_helper("service_streamer._future", "run_callback", callback, future);
  if (none == nullptr) PyErr_WriteUnraisable(callback);
  Py_XDECREF(none);
}

// What may run Python code, once everybody is awake.
void follow_up(FutureObject* future) {
  PyObject* self = reinterpret_cast<PyObject*>(future);
  Py_CLEAR(future->mailbox);
  Py_CLEAR(future->token);
  if (future->condition != nullptr && !future->announced) {
    PyObject* none = call_helper("service_streamer._future", "notify_waiters", self);
    if (none == nullptr) PyErr_WriteUnraisable(self);
    Py_XDECREF(none);
  }
  PyObject* callbacks = future->callbacks;
  future->callbacks = nullptr;  // whoever comes now is called at once
  for (Py_ssize_t i = 0; callbacks != nullptr && i < PyList_GET_SIZE(callbacks); ++i) {
    run_callback(PyList_GET_ITEM(callbacks, i), self);
  }
  Py_XDECREF(callbacks);
}

// Once nobody works on it: the items, and outputs that came too late, go even where the future is kept.
void let_go(Request& request) {
  FutureObject* future = future_of(request);
  Py_CLEAR(future->items);
  Py_CLEAR(future->outputs);
  drop_pieces(future);
  Py_DECREF(reinterpret_cast<PyObject*>(future));
}

}  // namespace

void publish(EndedRequests& ended) {
  if (ended.count == 0) return;
  WakeChain chain(ended.count);
  EndedRequests in_order;
  while (Request* request = ended.pop()) {
    FutureObject* future = future_of(*request);
    chain.publish(request->completion);
    if (future->mailbox != nullptr) post(future->mailbox, future->token);
    in_order.push(*request);
  }
  chain.wake();
  // A caller that makes an exception on its way here keeps it: nothing below may lose or see it.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  while (Request* request = in_order.pop()) {
    follow_up(future_of(*request));
    if (request->drop_hold()) let_go(*request);
  }
  PyErr_Restore(type, value, traceback);
}

void let_go(ReleasedRequests& released) {
  while (Request* request = released.pop()) let_go(*request);
}

void end_future(FutureObject* future, Outcome outcome, bool even_if_running) {
  if (is_done(future)) return;
  EndedRequests ended;
  future->engine->engine->end_early(future->request, outcome, even_if_running, ended);
  publish(ended);
}

}  // namespace service_streamer::bindings
