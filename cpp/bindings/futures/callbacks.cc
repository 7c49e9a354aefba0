#include "bindings/futures/callbacks.h"

#include <poll.h>

#include <atomic>
#include <memory>
#include <utility>

#include "bindings/futures/engine_object.h"
#include "bindings/futures/mailbox.h"
#include "bindings/python/errors.h"
#include "bindings/python/free_threading.h"
#include "bindings/python/libraries.h"
#include "bindings/python/methods.h"

namespace service_streamer::bindings {
namespace {

// The mailbox of the callbacks thread: futures whose call has ended. A forked child leaks the parent's.
std::atomic<std::shared_ptr<Mailbox>*> ended_calls{nullptr};
std::atomic<bool> thread_runs{false};

bool start_thread() {
  if (thread_runs) return true;
  PyObject* none = python::start_callbacks();
  if (none != nullptr) thread_runs = true;
  Py_XDECREF(none);
  return none != nullptr;
}

// Makes sure that follow_up() is called at the end. False: the request has ended, or an exception is set. What
// follow_up() is to find must be there before the request ends: it is stored in a Locked, if the request has not ended.
bool will_be_followed(FutureObject* future) {
  if (is_done(future)) return false;
  if (future->call == nullptr) return true;
  if (!start_thread() || is_done(future)) return false;  // start_thread() runs Python code: look again
  bool followed = false;
  PyObject* self = reinterpret_cast<PyObject*>(future);
  CaughtError failure;
  {
    const Locked lock(future);
    if (future->followed) return true;
    failure = attempt([&] { followed = future->observers->add(*ended_calls.load(), self); });
    if (followed) Py_INCREF(self);
    future->followed = followed;
  }
  failure.raise();
  return followed;
}

void run_callback(PyObject* callback, PyObject* future) {
  PyObject* none = python::run_callback(callback, future);
  if (none == nullptr) PyErr_WriteUnraisable(callback);
  Py_XDECREF(none);
}

// The value could not be made, for lack of memory. concurrent.futures.wait() must still see the end.
void end_unsettled(FutureObject* future) {
  PyObject* error = take_exception();
  {
    const Locked lock(future);
    std::swap(future->exception, error);
  }
  Py_XDECREF(error);
}

// --- the thread ---

PyObject* open_callbacks(PyObject*, PyObject*) {
  if (ended_calls != nullptr) Py_RETURN_NONE;
  return none_or_raise(attempt([] {
    auto* made = new std::shared_ptr<Mailbox>(make_mailbox());
    std::shared_ptr<Mailbox>* none = nullptr;
    if (!ended_calls.compare_exchange_strong(none, made)) delete made;
  }));
}

PyObject* run_callbacks(PyObject*, PyObject*) {
  Mailbox& mailbox = **ended_calls.load();  // never freed
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
  const CaughtError failure = attempt(
      [&] { message = std::make_unique<Mailbox::Message>(Mailbox::Message{.to = *ended_calls.load(), .value = fn}); });
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
  PyObject* list = PyList_New(0);
  if (list == nullptr) return Added::kError;
  Added added = Added::kError;
  if (will_be_followed(future)) {
    const Locked lock(future);
    if (is_done(future)) {
      added = Added::kTooLate;  // follow_up() may have taken the callbacks
    } else {
      if (future->callbacks == nullptr) future->callbacks = std::exchange(list, nullptr);
      if (PyList_Append(future->callbacks, callback) == 0) added = Added::kYes;
    }
  } else if (PyErr_Occurred() == nullptr) {
    added = Added::kTooLate;
  }
  Py_XDECREF(list);
  return added;
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
  PyObject* known = member_of(future, &FutureObject::condition);
  if (known == nullptr) {
    PyObject* type = import_member("threading", "Condition");
    PyObject* condition = type != nullptr ? PyObject_CallNoArgs(type) : nullptr;
    Py_XDECREF(type);
    if (condition == nullptr) return nullptr;
    const bool followed = will_be_followed(future);
    if (!followed && PyErr_Occurred() != nullptr) {
      Py_DECREF(condition);
      return nullptr;
    }
    {
      const Locked lock(future);
      if (future->condition == nullptr) {  // it may have been set while this thread ran Python code
        future->condition = Py_NewRef(condition);
        future->announced = !followed || is_done(future);
      }
      known = Py_NewRef(future->condition);
    }
    Py_DECREF(condition);
  }
  return known;
}

void follow_up(FutureObject* future) {
  PyObject* self = reinterpret_cast<PyObject*>(future);
  PyObject* callbacks = nullptr;
  bool waited_for = false;
  {
    const Locked lock(future);
    waited_for = future->condition != nullptr && !future->announced;
  }
  if (waited_for) {
    if (!settle(future)) end_unsettled(future);
    PyObject* none = python::notify_waiters(self);
    if (none == nullptr) PyErr_WriteUnraisable(self);
    Py_XDECREF(none);
  }
  {
    const Locked lock(future);
    callbacks = std::exchange(future->callbacks, nullptr);  // from here add_callback() answers kTooLate
  }
  for (Py_ssize_t i = 0; callbacks != nullptr && i < PyList_GET_SIZE(callbacks); ++i) {
    run_callback(PyList_GET_ITEM(callbacks, i), self);
  }
  Py_XDECREF(callbacks);
}

}  // namespace service_streamer::bindings
