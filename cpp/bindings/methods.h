#pragma once

#include <Python.h>

namespace service_streamer::bindings {

// A function of any of the C signatures as a PyMethodDef wants it; its flags say which signature it is.
template <typename Function>
PyCFunction as_method(Function function) noexcept {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace service_streamer::bindings
