#include <pybind11/pybind11.h>

#include "bindings/batch.h"
#include "bindings/engine.h"
#include "bindings/future.h"
#include "bindings/mailbox.h"

namespace py = pybind11;
using namespace service_streamer::bindings;

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ core of service_streamer; private.";
  module.attr("__version__") = SERVICE_STREAMER_VERSION;

  bind_mailbox(module);
  if (!make_future_type(module.ptr()) || !make_batch_type(module.ptr()) || !make_engine_type(module.ptr())) {
    throw py::error_already_set();
  }
  module.def("after_fork_in_child", &count_fork, "Marks every engine and future made so far as the parent's.");
}
