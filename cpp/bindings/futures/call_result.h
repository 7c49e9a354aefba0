#pragma once

#include <Python.h>

#include <utility>

#include "bindings/futures/future.h"

namespace service_streamer::bindings {

// Settles a future whose call has ended: `make(value, error)` makes one of them, or none with an exception set; `drop()` lets go
// of what they are made of. Making them may give up the GIL: threads that ask meanwhile do it too, and the first that is ready
// has it for all; the last of them drops.
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
