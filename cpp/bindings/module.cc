#include <pybind11/pybind11.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

#include "bindings/batches/batch.h"
#include "bindings/batches/isolation.h"
#include "bindings/batches/own_outputs.h"
#include "bindings/broker/broker_egress.h"
#include "bindings/broker/broker_ingress.h"
#include "bindings/broker/broker_messages.h"
#include "bindings/broker/leases.h"
#include "bindings/engine/engine.h"
#include "bindings/futures/callbacks.h"
#include "bindings/futures/future.h"
#include "bindings/futures/greenlets.h"
#include "bindings/futures/mailbox.h"
#include "bindings/native/native_workers.h"
#include "bindings/pickling/codec.h"
#include "bindings/pickling/shared_buffer.h"
#include "bindings/processes/client_link.h"
#include "bindings/processes/server.h"
#include "bindings/processes/worker_link.h"
#include "bindings/python/arguments.h"
#include "bindings/python/fork.h"
#include "bindings/python/from_core.h"

namespace py = pybind11;
using namespace service_streamer::bindings;

namespace {

bool die_with_parent(pid_t parent) {
  return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
}

}  // namespace

// In a subinterpreter pybind11 would wait for ever for the state of this thread in the main interpreter.
PYBIND11_PLUGIN_DECL(core)

PYBIND11_PLUGIN_IMPL(_core) {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return PyInit_core();
  PyErr_SetString(PyExc_ImportError, "subinterpreter");  // _base/install_check.py explains it
  return nullptr;
}

// Not py::mod_gil_not_used() yet: decision 089 says what is missing.
PYBIND11_MODULE(core, module) {
  module.doc() = "The C++ core of service_streamer; private.";
  module.attr("__version__") = SERVICE_STREAMER_VERSION;

  PyObject* self = module.ptr();
  if (!watch_forks() || !make_from_core_function(self) || !make_mailbox_type(self) || !make_greenlet_types(self) ||
      !make_future_type(self) || !make_batch_type(self) || !make_engine_type(self) || !make_callback_functions(self) ||
      !make_encoder_type() || !make_shared_buffer_type(self) || !make_decoder(self) || !make_server_type(self) ||
      !make_client_link_type(self) || !make_broker_egress_type(self) || !make_broker_ingress_type(self) ||
      !make_leases_type(self) || !make_broker_functions(self) || !make_worker_link_type(self) ||
      !make_native_workers_type(self)) {
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
  module.def(
      "die_with_parent", &die_with_parent, py::arg("parent"), py::pos_only(),
      "Has the kernel kill this process when the thread that forked it ends; False: the parent has ended already.");
}
