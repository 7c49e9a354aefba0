#pragma once

#include <Python.h>

#include <exception>
#include <string_view>

namespace service_streamer::bindings {

// Sets the exception `name` of service_streamer._errors, made from a tuple of constructor arguments (stolen; nullptr: an
// exception is set already). Always returns nullptr, for `return raise(...)`.
PyObject* raise_error(const char* name, PyObject* arguments);

// The same with one message argument, formatted as by PyUnicode_FromFormat.
PyObject* raise_message(const char* name, const char* format, ...);

// WorkerLost with the note as its message; for "init: " and the note of an InitFailure (_init_failure.py) that error.
PyObject* raise_lost(std::string_view note);

// The exception that is set, as an object, and set no longer. Its traceback, which keeps alive what its frames refer to, is left out
// unless it is asked for.
PyObject* take_exception(bool with_traceback = false);

// What a function of the core threw, kept until the GIL is there to raise it in Python. Nothing to destroy.
class CaughtError {
 public:
  // To be called in a catch block.
  void note(const std::exception& error);

  // Raises it: MemoryError, OSError, ValueError or RuntimeError. False: there is none.
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

// As attempt(), without the GIL, for what takes long but ends by itself. It must own nothing that needs the GIL to be destroyed.
template <typename Function>
CaughtError attempt_without_gil(Function function) {
  PyThreadState* state = PyEval_SaveThread();
  const CaughtError failure = attempt(function);
  PyEval_RestoreThread(state);
  return failure;
}

// Calls service_streamer.<module>.<function>(first, second?); a new reference or nullptr. For what is rare.
PyObject* call_helper(const char* module, const char* function, PyObject* first, PyObject* second = nullptr);

}  // namespace service_streamer::bindings
