#pragma once

#include <Python.h>

#include <cstdint>

#include "service_streamer/worker/worker_link.h"

namespace service_streamer::bindings {

// The Python type WorkerLink: the connection of a worker process to its engine. For one thread.
struct WorkerLinkObject {
  PyObject_HEAD
  ipc::WorkerLink* link;
  std::uint32_t fork_generation;
  bool output_batch;    // callers get slices of the model's array, not lists
  bool inline_outputs;  // no output is put into shared memory
};

bool make_worker_link_type(PyObject* module);

}  // namespace service_streamer::bindings
