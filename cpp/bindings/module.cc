#include <pybind11/pybind11.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

#include "bindings/batch.h"
#include "bindings/broker_messages.h"
#include "bindings/callbacks.h"
#include "bindings/codec.h"
#include "bindings/engine.h"
#include "bindings/fork.h"
#include "bindings/future.h"
#include "bindings/greenlets.h"
#include "bindings/held.h"
#include "bindings/inlet.h"
#include "bindings/isolation.h"
#include "bindings/mailbox.h"
#include "bindings/native_workers.h"
#include "bindings/outlet.h"
#include "bindings/relay.h"
#include "bindings/server.h"
#include "bindings/shared_buffer.h"
#include "bindings/worker_batch.h"
#include "bindings/worker_link.h"

namespace py = pybind11;
using namespace service_streamer::bindings;

namespace {

bool die_with_parent(pid_t parent) {
  return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ core of service_streamer; private.";
  module.attr("__version__") = SERVICE_STREAMER_VERSION;

  PyObject* self = module.ptr();
  if (!watch_forks() || !make_mailbox_type(self) || !make_greenlet_types(self) || !make_future_type(self) ||
      !make_batch_type(self) || !make_engine_type(self) || !make_callback_functions(self) || !make_encoder_type() ||
      !make_shared_buffer_type(self) || !make_decoder(self) || !make_server_type(self) || !make_relay_type(self) ||
      !make_outlet_type(self) || !make_inlet_type(self) || !make_held_type(self) || !make_broker_functions(self) ||
      !make_worker_batch_type(self) || !make_worker_link_type(self) || !make_native_workers_type(self)) {
    throw py::error_already_set();
  }
  make_isolation_type(self);
  module.def(
      "leave_native_threads", &leave_native_threads,
      "Has the process end without destructors if threads of native models still run then, which need what those "
      "take away.");
  module.def(
      "die_with_parent", &die_with_parent, py::arg("parent"), py::pos_only(),
      "Has the kernel kill this process when the thread that forked it ends; False: the parent has gone already.");
}
