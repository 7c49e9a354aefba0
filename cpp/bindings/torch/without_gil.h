#pragma once

#include <Python.h>

#include <exception>

namespace service_streamer::bindings {

// Calls a function of the library without the GIL. What it throws is thrown once the GIL is back, for its catchers use Python.
//
// Not by pybind11's gil_scoped_release, which takes the GIL back in its destructor: where the interpreter has begun to end
// meanwhile, a thread that asks for the GIL is ended right there by unwinding its stack, and an unwinding that leaves a destructor
// ends the process. Here it passes: nothing in this frame, or in those of the callers, needs the GIL to be destroyed. What
// `function` owns must not either.
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
