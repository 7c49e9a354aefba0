#pragma once

#include <Python.h>

#include <memory>

#include "service_streamer/waiting/mailbox.h"

namespace service_streamer::bindings {

bool make_mailbox_type(PyObject* module);

// Whether `object` is a Mailbox; sets a TypeError where it is not.
bool check_mailbox(PyObject* object);

// A mailbox of Python objects, each with a reference of its own, that threads without the GIL may post to, and let go of
// last: objects that are still in it then are released when somebody who has the GIL comes by. Throws std::system_error.
std::shared_ptr<Mailbox> make_mailbox();

// That of a Mailbox object; nullptr: it is closed.
std::shared_ptr<Mailbox> open_mailbox(PyObject* mailbox);

// Posts a token (a new reference is taken) to a Mailbox object; to one that is closed, nothing. Cannot fail.
void post(PyObject* mailbox, PyObject* token);

}  // namespace service_streamer::bindings
