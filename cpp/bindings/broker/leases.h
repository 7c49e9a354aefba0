#pragma once

#include <Python.h>

#include <string>
#include <vector>

#include "service_streamer/wire/broker_entries.h"

// The entries of a broker's queue on their way through an BrokerIngress, without a step of Python's for each. All under the GIL, but for copying
// and submitting what is long.

namespace service_streamer::bindings {

struct LeasesObject {
  PyObject_HEAD
  PyObject* ingress;
  PyObject* ring;  // called when it gets fewer
  ipc::LeasedEntries* entries;
};

inline LeasesObject* leases_of(PyObject* self) {
  return reinterpret_cast<LeasesObject*>(self);
}

bool make_leases_type(PyObject* module);

// Methods; held.cc says what they do.
PyObject* leases_take_in(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* leases_answer(PyObject* self, PyObject* args, PyObject* kwargs);

// False with an exception set.
bool ring(LeasesObject* self);

// A new list of bytes; nullptr with an exception set.
PyObject* bytes_list(const std::vector<std::string>& texts);

}  // namespace service_streamer::bindings
