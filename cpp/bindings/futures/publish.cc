#include <Python.h>

#include "bindings/engine/engine.h"
#include "bindings/futures/callbacks.h"
#include "bindings/futures/future.h"
#include "bindings/futures/mailbox.h"
#include "service_streamer/calls/call.h"

namespace service_streamer::bindings {
namespace {

// Once nobody works on it: the items, and outputs that came too late, go even where the future is kept.
void let_go(Request& request) {
  FutureObject* future = future_of(request);
  Py_CLEAR(future->items);
  Py_CLEAR(future->outputs);
  if (request.outcome != Outcome::kAnswered) Py_CLEAR(future->value);
  drop_pieces(future);
  Py_DECREF(reinterpret_cast<PyObject*>(future));
}

void publish_futures(EndedRequests& ended) {
  if (ended.count == 0) return;
  WakeQueue& queue = WakeQueue::instance();
  EndedRequests in_order;
  while (Request* request = ended.pop()) {
    FutureObject* future = future_of(*request);
    queue.publish(request->completion);
    if (future->mailbox != nullptr) post(future->mailbox, future->token);
    in_order.push(*request);
  }
  queue.wake();
  // A caller that makes an exception on its way here keeps it: nothing below may lose or see it.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  while (Request* request = in_order.pop()) {
    follow_up(future_of(*request));
    if (request->drop_hold()) let_go(*request);
  }
  PyErr_Restore(type, value, traceback);
}

}  // namespace

void publish(const EngineObject* engine, EndedRequests& ended) {
  engine->has_calls() ? calls::publish(ended) : publish_futures(ended);
}

void let_go(const EngineObject* engine, ReleasedRequests& released) {
  if (engine->has_calls()) return calls::let_go(released);
  while (Request* request = released.pop()) let_go(*request);
}

void end_future(FutureObject* future, Outcome outcome, bool even_if_running) {
  if (is_done(future)) return;
  EndedRequests ended;
  future->engine->engine->end_early(*future->request, outcome, even_if_running, ended);
  publish(future->engine, ended);
}

}  // namespace service_streamer::bindings
