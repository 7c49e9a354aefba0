#pragma once

#include <Python.h>

#include <string_view>

#include "service_streamer/shared_memory/shared_memory.h"

namespace service_streamer::bindings {

bool make_shared_buffer_type(PyObject* module);

// A block of shared memory as a Python object with a buffer: writable and private. It stays mapped as long as there is
// a reference to the object or to its buffer. nullptr with an exception set.
PyObject* make_shared_buffer(ipc::BlockRef block);

std::string_view text_of_shared_buffer(PyObject* buffer);

}  // namespace service_streamer::bindings
