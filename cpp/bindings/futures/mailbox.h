#pragma once

#include <Python.h>

#include <memory>

#include "service_streamer/waiting/mailbox.h"

namespace service_streamer::bindings {

bool make_mailbox_type(PyObject* module);

// Whether `object` is a Mailbox; sets a TypeError where it is not.
bool check_mailbox(PyObject* object);

// A mailbox of Python objects, each with a reference. Threads without the GIL may post to it, and may drop the last
// reference to it: objects left in it are released later, by a thread with the GIL. Throws std::system_error.
std::shared_ptr<Mailbox> make_mailbox();

// The mailbox of a Mailbox object; nullptr: it is closed, or the parent's.
std::shared_ptr<Mailbox> open_mailbox(PyObject* mailbox);

}  // namespace service_streamer::bindings
