#pragma once

#include <Python.h>

#include <cstddef>
#include <exception>

namespace service_streamer::bindings {

// Work on less memory keeps the GIL: getting it back from another thread could take longer than the work.
constexpr std::size_t kMinBytesWithoutGil = 64 << 10;

// Calls a function without the GIL. Its exceptions are rethrown with the GIL held, because the handlers use Python.
//
// pybind11::gil_scoped_release is not used, because its destructor takes the GIL. If the interpreter is finalizing,
// Python ends a thread that asks for the GIL by unwinding its stack, and unwinding out of a destructor terminates the
// process. Here the GIL is taken in a plain call, so unwinding is safe. Nothing that `function` or its callers own may
// need the GIL to be destroyed.
template <typename Function>
void without_gil(Function function) {
  std::exception_ptr failure;
  PyThreadState* state = PyEval_SaveThread();
  try {
    function();
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  PyEval_RestoreThread(state);
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace service_streamer::bindings
