#include "bindings/futures/backend.h"

#include <utility>

#include "bindings/futures/engine_object.h"
#include "bindings/futures/future.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/texts.h"
#include "bindings/python/waiting.h"

namespace service_streamer::bindings {

void Backend::raise_loss(const FutureObject* future) const {
  raise_message(python::worker_lost, "the worker of a batch with this request of %s ended without an answer",
                items_text(future->request->size).text);
}

// enter() is called with the GIL held, so no Python worker that needs it publishes before this thread is among those
// that wait.
int Backend::wait(FutureObject* future, TimePoint deadline, const WorkerWake& worker) {
  Completion& completion = future->request->completion;
  WorkerWake once = worker;
  bool entered = false;
  const auto wait = [&](Waiter& waiter) {
    std::exchange(once, {}).run();
    return completion.wait(waiter, deadline, entered);
  };
  return wait_without_gil(wait, [&](Waiter& waiter) { entered = completion.enter(waiter); });
}

bool Backend::is_running(const FutureObject* future) const {
  return future->engine->engine->running(*future->request);
}

int Backend::query_running(FutureObject* future) {
  return is_running(future) ? 1 : 0;
}

bool Backend::cancel(FutureObject* future) {
  end_future(future, Outcome::kCancelled, false);
  return true;
}

PyObject* Backend::obstacle(const FutureObject*) const {
  return PyUnicode_FromString("");
}

PyObject* Backend::close_reason() const {
  return PyUnicode_FromString("");
}

PyObject* Backend::raise_closed() const {
  PyObject* reason = close_reason();
  if (reason == nullptr) return nullptr;
  if (PyUnicode_GET_LENGTH(reason) > 0) {
    raise_message(python::streamer_closed, "the streamer is closed%U", reason);
  } else {
    bindings::raise_closed();
  }
  Py_DECREF(reason);
  return nullptr;
}

FutureObject* CallBackend::make_request(PyTypeObject* type, EngineObject* engine, PyObject* batch) {
  PyObject* items = items_from(batch);
  if (items == nullptr) return nullptr;
  FutureObject* future = nullptr;
  if (PyTuple_GET_SIZE(items) == 0) {
    future = make_future(type, engine, 0);
  } else if (engine->engine->closed()) {
    engine->backend->raise_closed();
  } else if (const NewCall made = make_call(items); made.call != nullptr) {
    made.call->request.size = static_cast<std::uint32_t>(PyTuple_GET_SIZE(items));
    future = make_future(type, engine, made.call, made.observers);
  }
  Py_DECREF(items);
  return future;
}

}  // namespace service_streamer::bindings
