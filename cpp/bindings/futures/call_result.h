#pragma once

#include <Python.h>

#include <utility>

#include "bindings/futures/future.h"

namespace service_streamer::bindings {

// The common part of Backend::settle(): `make(value, error)` makes one of the two from the result of the call, or
// neither with an exception set; `drop()` drops that result. make() may release the GIL. Other threads that ask
// meanwhile then make their own; the first object is kept, and the last thread to finish calls drop().
template <typename Make, typename Drop>
bool settle_with(FutureObject* future, Make make, Drop drop) {
  ++future->decoders;
  PyObject* value = nullptr;
  PyObject* error = nullptr;
  make(value, error);
  --future->decoders;

  if (value == nullptr && error == nullptr) return false;
  const bool first = future->value == nullptr && future->exception == nullptr;
  if (first) {
    future->value = std::exchange(value, nullptr);
    future->exception = std::exchange(error, nullptr);
  }
  if (future->decoders == 0 && future->fork_generation == fork_generation()) drop();
  Py_XDECREF(value);
  Py_XDECREF(error);
  return true;
}

}  // namespace service_streamer::bindings
