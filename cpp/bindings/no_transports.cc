#include "bindings/processes/process_backend.h"
#include "bindings/python/python_lock.h"
#include "bindings/transports.h"

// Compiled with SERVICE_STREAMER_PORTABLE, instead of transports.cc and the folders broker/, pickling/ and processes/.

namespace service_streamer::bindings {

bool make_transport_types(PyObject*) {
  sleep_on_python_locks();
  return true;
}

Backend* make_process_backend(bool) {
  PyErr_SetString(PyExc_ImportError, "this build has no transports");
  return nullptr;
}

}  // namespace service_streamer::bindings
