#include "bindings/torch/errors.h"

#include <Python.h>

#include "service_streamer/torch/errors.h"

namespace service_streamer::bindings {

void set_run_error(const std::exception& error) {
  const native::RunError known = torch_backend::run_error_of(error);
  PyErr_SetString(known.fault == native::Fault::kMemory ? PyExc_MemoryError : PyExc_RuntimeError, known.what());
}

}  // namespace service_streamer::bindings
