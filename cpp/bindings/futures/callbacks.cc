#include "bindings/futures/callbacks.h"

#include <poll.h>

#include <memory>
#include <utility>

#include "bindings/futures/engine_object.h"
#include "bindings/futures/mailbox.h"
#include "bindings/python/errors.h"
#include "bindings/python/libraries.h"
#include "bindings/python/methods.h"

namespace service_streamer::bindings {
namespace {

// The mailbox of the callbacks thread: futures whose call has ended. A forked child leaks the parent's.
std::shared_ptr<Mailbox>* ended_calls = nullptr;
bool thread_runs = false;

bool start_thread() {
  if (thread_runs) return true;
  PyObject* none = python::start_callbacks();
  if (none != nullptr) thread_runs = true;
  Py_XDECREF(none);
  return none != nullptr;
}

// Makes sure that follow_up() is called at the end. False: the request has ended, or an exception is set.
bool will_be_followed(FutureObject* future) {
  if (is_done(future)) return false;
  if (future->call == nullptr || future->followed) return true;
  if (!start_thread() || is_done(future)) return false;  // start_thread() runs Python code: look again
  if (future->followed) return true;
  PyObject* self = Py_NewRef(reinterpret_cast<PyObject*>(future));
  const CaughtError failure = attempt([&] { future->followed = future->observers->add(*ended_calls, self); });
  if (!future->followed) Py_DECREF(self);
  failure.raise();
  return future->followed;
}

void run_callback(PyObject* callback, PyObject* future) {
  PyObject* none = python::run_callback(callback, future);
  if (none == nullptr) PyErr_WriteUnraisable(callback);
  Py_XDECREF(none);
}

// The value could not be made, for lack of memory. concurrent.futures.wait() must still see the end.
void end_unsettled(FutureObject* future) {
  Py_XSETREF(future->exception, take_exception());
}

// --- the thread ---

PyObject* open_callbacks(PyObject*, PyObject*) {
  if (ended_calls == nullptr) {
    const CaughtError failure = attempt([] { ended_calls = new std::shared_ptr<Mailbox>(make_mailbox()); });
    if (failure.raise()) return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* run_callbacks(PyObject*, PyObject*) {
  Mailbox& mailbox = **ended_calls;  // never freed
  for (;;) {
    pollfd readable{.fd = mailbox.fd(), .events = POLLIN, .revents = 0};
    PyThreadState* state = PyEval_SaveThread();
    poll(&readable, 1, -1);
    PyEval_RestoreThread(state);
    Mailbox::Messages messages = mailbox.drain();
    while (void* message = messages.pop()) {
      PyObject* object = static_cast<PyObject*>(message);
      if (PyObject_TypeCheck(object, future_base_type)) {
        follow_up(reinterpret_cast<FutureObject*>(object));
      } else {
        run_callback(object, Py_None);
      }
      Py_DECREF(object);
    }
  }
}

PyObject* post_callback(PyObject*, PyObject* fn) {
  if (!thread_runs) Py_RETURN_FALSE;
  std::unique_ptr<Mailbox::Message> message;
  const CaughtError failure =
      attempt([&] { message = std::make_unique<Mailbox::Message>(Mailbox::Message{.to = *ended_calls, .value = fn}); });
  if (failure.raise()) return nullptr;
  Py_INCREF(fn);
  Mailbox::post(std::move(message));
  Py_RETURN_TRUE;
}

// In a forked child: the thread and its mailbox are the parent's.
void forget_callbacks_thread() {
  ended_calls = nullptr;
  thread_runs = false;
}

PyMethodDef functions[] = {
    {"open_callbacks", open_callbacks, METH_NOARGS,
     "open_callbacks()\n--\n\n"
     "Makes the mailbox of run_callbacks(); to be called before that thread starts."},
    {"run_callbacks", run_callbacks, METH_NOARGS,
     "run_callbacks()\n--\n\n"
     "Runs the done callbacks of requests that worker processes answer; never returns."},
    {"post_callback", post_callback, METH_O,
     "post_callback($module, fn, /)\n--\n\n"
     "Has fn(None) called after the callbacks of all requests that have ended; False: the callbacks thread does not "
     "run."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool make_callback_functions(PyObject* module) {
  return at_fork_in_child(forget_callbacks_thread) && PyModule_AddFunctions(module, functions) == 0;
}

// The allocation comes first: it may run Python code, and the request may end meanwhile.
Added add_callback(FutureObject* future, PyObject* callback) {
  if (future->callbacks == nullptr) {
    PyObject* list = PyList_New(0);
    if (list == nullptr) return Added::kError;
    if (future->callbacks == nullptr) std::swap(future->callbacks, list);
    Py_XDECREF(list);
  }
  if (!will_be_followed(future)) return PyErr_Occurred() != nullptr ? Added::kError : Added::kTooLate;
  return PyList_Append(future->callbacks, callback) == 0 ? Added::kYes : Added::kError;
}

// A mailbox that is closed meanwhile releases the token.
bool attach(FutureObject* future, PyObject* mailbox, PyObject* token) {
  if (is_done(future)) return false;
  std::shared_ptr<Mailbox> open = open_mailbox(mailbox);
  if (open == nullptr) return true;
  bool observed = false;
  Py_INCREF(token);
  const CaughtError failure = attempt([&] { observed = future->observers->add(std::move(open), token); });
  if (!observed) Py_DECREF(token);
  failure.raise();
  return observed;
}

PyObject* condition_of(FutureObject* future) {
  if (future->condition == nullptr) {
    PyObject* type = import_member("threading", "Condition");
    PyObject* condition = type != nullptr ? PyObject_CallNoArgs(type) : nullptr;
    Py_XDECREF(type);
    if (condition == nullptr) return nullptr;
    const bool followed = will_be_followed(future);
    if (!followed && PyErr_Occurred() != nullptr) {
      Py_DECREF(condition);
      return nullptr;
    }
    if (future->condition == nullptr) {  // it may have been set while this thread ran Python code
      future->condition = Py_NewRef(condition);
      future->announced = !followed;
    }
    Py_DECREF(condition);
  }
  return Py_NewRef(future->condition);
}

void follow_up(FutureObject* future) {
  PyObject* self = reinterpret_cast<PyObject*>(future);
  if (future->condition != nullptr && !future->announced) {
    if (!settle(future)) end_unsettled(future);
    PyObject* none = python::notify_waiters(self);
    if (none == nullptr) PyErr_WriteUnraisable(self);
    Py_XDECREF(none);
  }
  PyObject* callbacks = future->callbacks;
  future->callbacks = nullptr;  // from here add_callback() answers kTooLate
  for (Py_ssize_t i = 0; callbacks != nullptr && i < PyList_GET_SIZE(callbacks); ++i) {
    run_callback(PyList_GET_ITEM(callbacks, i), self);
  }
  Py_XDECREF(callbacks);
}

}  // namespace service_streamer::bindings
