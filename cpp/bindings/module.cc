#include <pybind11/pybind11.h>

#include "bindings/batches/batch.h"
#include "bindings/batches/isolation.h"
#include "bindings/batches/own_outputs.h"
#include "bindings/engine/engine.h"
#include "bindings/futures/callbacks.h"
#include "bindings/futures/future.h"
#include "bindings/futures/greenlets.h"
#include "bindings/futures/mailbox.h"
#include "bindings/native/native_workers.h"
#include "bindings/python/arguments.h"
#include "bindings/python/fork.h"
#include "bindings/python/from_core.h"
#include "bindings/transports.h"

namespace py = pybind11;
using namespace service_streamer::bindings;

// In a subinterpreter pybind11 would wait for ever for the state of this thread in the main interpreter.
PYBIND11_PLUGIN_DECL(core)

PYBIND11_PLUGIN_IMPL(_core) {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return PyInit_core();
  PyErr_SetString(PyExc_ImportError, "subinterpreter");  // _base/install_check.py explains it
  return nullptr;
}

PYBIND11_MODULE(core, module, py::mod_gil_not_used()) {
  module.doc() = "The C++ core of service_streamer; private.";
  module.attr("__version__") = SERVICE_STREAMER_VERSION;

  PyObject* self = module.ptr();
  if (!watch_forks() || !make_from_core_function(self) || !make_mailbox_type(self) || !make_greenlet_types(self) ||
      !make_future_type(self) || !make_batch_type(self) || !make_engine_type(self) || !make_callback_functions(self) ||
      !make_native_workers_type(self) || !make_transport_types(self)) {
    throw py::error_already_set();
  }
  make_isolation_type(self);
  module.def("leave_native_threads", &leave_native_threads,
             "Has the process end without destructors if threads of native models still run then: they use what the "
             "destructors would free.");
  module.def(
      "item_list",
      [](py::handle batch) {
        PyObject* items = item_list_from(batch.ptr());
        if (items == nullptr) throw py::error_already_set();
        return py::reinterpret_steal<py::list>(items);
      },
      py::arg("batch"), py::pos_only(), "The items of a request as a new list. TypeError: not a sequence of items.");
  module.def(
      "own_outputs",
      [](py::handle outputs) {
        PyObject* owned = own_outputs(outputs.inc_ref().ptr(), nullptr);
        if (owned == nullptr) throw py::error_already_set();
        return py::reinterpret_steal<py::object>(owned);
      },
      py::arg("outputs"), py::pos_only(), "The outputs with copies of arrays and tensors that others refer to, too.");
}
