#pragma once

#include <Python.h>

#include <string>
#include <vector>

#include "bindings/python/free_threading.h"
#include "service_streamer/wire/broker_entries.h"

// The Python type Leases: the entries of a broker's queue that this process has taken, until they are acknowledged. It
// passes them to a BrokerIngress and makes their replies, without Python code for each entry. Needs the GIL; long
// bodies are copied without it.

namespace service_streamer::bindings {

struct LeasesObject {
  PyObject_HEAD
  PyObject* ingress;
  PyObject* ring;  // called when entries are removed
  ipc::LeasedEntries* entries;
};

inline LeasesObject* leases_of(PyObject* self) {
  return reinterpret_cast<LeasesObject*>(self);
}

bool make_leases_type(PyObject* module);

// Methods; leases.cc has their docstrings.
PyObject* leases_take_in(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* leases_answer(PyObject* self, PyObject* args, PyObject* kwargs);

// Calls a function that uses the entries, in a Locked of the object.
template <typename Function>
auto locked(const void* leases, Function function) {
  const Locked lock(leases);
  return function();
}

// False with an exception set.
bool ring(LeasesObject* self);

// A new list of bytes; nullptr with an exception set.
PyObject* bytes_list(const std::vector<std::string>& texts);

}  // namespace service_streamer::bindings
