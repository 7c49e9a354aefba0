#include "bindings/transports.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

#include "bindings/broker/broker_egress.h"
#include "bindings/broker/broker_ingress.h"
#include "bindings/broker/broker_messages.h"
#include "bindings/broker/leases.h"
#include "bindings/pickling/codec.h"
#include "bindings/pickling/shared_buffer.h"
#include "bindings/processes/client_link.h"
#include "bindings/processes/server.h"
#include "bindings/processes/worker_link.h"

namespace service_streamer::bindings {
namespace {

PyObject* die_with_parent(PyObject*, PyObject* parent) {
  const long pid = PyLong_AsLong(parent);
  if (pid == -1 && PyErr_Occurred() != nullptr) return nullptr;
  return PyBool_FromLong(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == pid);
}

PyMethodDef functions[] = {
    {"die_with_parent", die_with_parent, METH_O,
     "die_with_parent($module, parent, /)\n--\n\n"
     "Has the kernel kill this process when the thread that forked it ends; False: the parent has ended already."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool make_transport_types(PyObject* module) {
  return make_encoder_type() && make_shared_buffer_type(module) && make_decoder(module) && make_server_type(module) &&
         make_client_link_type(module) && make_broker_egress_type(module) && make_broker_ingress_type(module) &&
         make_leases_type(module) && make_broker_functions(module) && make_worker_link_type(module) &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace service_streamer::bindings
