#pragma once

#include <Python.h>

#include <exception>
#include <string_view>

#include "bindings/python/from_core.h"

namespace service_streamer::bindings {

// Raises an exception of the class `type` with a tuple of constructor arguments (stolen; nullptr: an exception is set
// already). Always returns nullptr, for `return raise_error(...)`.
PyObject* raise_error(const PythonObject& type, PyObject* arguments);

// The same with one message argument, formatted as by PyUnicode_FromFormat.
PyObject* raise_message(const PythonObject& type, const char* format, ...);

// Raises an exception of `type` for a mistake of the user. The message, formatted as by PyUnicode_FromFormat, gets the
// address of the entry `anchor` on the page of messages (_base/messages.py).
PyObject* raise_mistake(PyObject* type, const char* anchor, const char* format, ...);

// Raises the StreamerClosed of a request to a closed streamer.
PyObject* raise_closed();

// Raises the ValueError for a tenant that the engine has no share for.
void raise_unknown_tenant(PyObject* name);

// Raises WorkerLost with the note as its message. A note that begins with "init: " raises the error of an InitFailure
// (_processes/init_failure.py) instead. One that begins with "tenant: " and goes on with a name raises ValueError.
PyObject* raise_lost(std::string_view note);

// Clears the exception that is set and returns it as an object. Without `with_traceback` its traceback is dropped,
// because that keeps alive what its frames refer to.
PyObject* take_exception(bool with_traceback = false);

// An exception that a function of the core threw, kept to be raised in Python. It has no destructor, so that it may be
// on the stack of a thread that waits for the GIL.
class CaughtError {
 public:
  // To be called in a catch block.
  void note(const std::exception& error);

  // Raises MemoryError, OSError, ValueError or RuntimeError. False: there was no exception.
  bool raise() const;
  explicit operator bool() const { return kind_ != Kind::kNone; }

 private:
  enum class Kind { kNone, kMemory, kSystem, kValue, kOther } kind_ = Kind::kNone;
  int code_ = 0;
  char text_[200] = {};
};

// Calls a function of the core, with or without the GIL.
template <typename Function>
CaughtError attempt(Function function) {
  CaughtError failure;
  try {
    function();
  } catch (const std::exception& error) {
    failure.note(error);
  }
  return failure;
}

// A new reference to None, or nullptr with the failure raised.
PyObject* none_or_raise(const CaughtError& failure);

// As attempt(), without the GIL, for a function that takes long but ends by itself. It must own nothing whose
// destructor needs the GIL.
template <typename Function>
CaughtError attempt_without_gil(Function function) {
  PyThreadState* state = PyEval_SaveThread();
  const CaughtError failure = attempt(function);
  PyEval_RestoreThread(state);
  return failure;
}

}  // namespace service_streamer::bindings
