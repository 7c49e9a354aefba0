#pragma once

#include <Python.h>

#include <utility>

#include "bindings/futures/future.h"
#include "bindings/python/free_threading.h"

namespace service_streamer::bindings {

// The common part of Backend::settle(): `make(value, error, order)` makes one of the first two from the result of the
// call, or neither with an exception set. `order` is that of the future, a new reference or nullptr; a function that
// puts the value into that order clears it. `drop()` drops the result. make() may release the GIL. Other threads that
// ask meanwhile then make their own; the first object is kept, and the last thread to finish calls drop().
template <typename Make, typename Drop>
bool settle_with(FutureObject* future, Make make, Drop drop) {
  PyObject* order = nullptr;
  {
    const Locked lock(future);
    if (future->value != nullptr || future->exception != nullptr) return true;
    ++future->decoders;
    order = Py_XNewRef(future->order);
  }
  PyObject* value = nullptr;
  PyObject* error = nullptr;
  const bool had_order = order != nullptr;
  make(value, error, order);

  const bool made = value != nullptr || error != nullptr;
  const bool ordered = had_order && order == nullptr;
  bool last = false;
  {
    const Locked lock(future);
    --future->decoders;
    if (made && future->value == nullptr && future->exception == nullptr) {
      future->value = std::exchange(value, nullptr);
      future->exception = std::exchange(error, nullptr);
      if (ordered) order = std::exchange(future->order, nullptr);
    }
    last = made && future->decoders == 0 && future->fork_generation == fork_generation();
  }
  if (last) drop();
  Py_XDECREF(order);
  Py_XDECREF(value);
  Py_XDECREF(error);
  return made;
}

}  // namespace service_streamer::bindings
