#pragma once

#include <pybind11/pybind11.h>

namespace service_streamer::bindings {

void bind_mailbox(pybind11::module_& module);

// Whether `object` is a Mailbox; sets a TypeError where it is not.
bool check_mailbox(PyObject* object);

// Posts a token (a new reference is taken) to a Mailbox object. Cannot fail.
void post(PyObject* mailbox, PyObject* token);

}  // namespace service_streamer::bindings
