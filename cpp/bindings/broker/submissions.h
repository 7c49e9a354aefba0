#pragma once

#include <Python.h>

#include <cstddef>
#include <vector>

#include "service_streamer/broker/broker_ingress.h"

namespace service_streamer::bindings {

// Requests for a BrokerIngress, and the bytes objects that their bodies are copied from, without the first `skip` bytes
// of each. The copy may run without the GIL, so it must be on the heap, and clear() must be called before it is
// deleted.
struct Submissions {
  explicit Submissions(std::size_t skipped = 0) : skip(skipped) {}

  const std::size_t skip;
  std::vector<ipc::BrokerIngress::Submission> all;
  std::vector<PyObject*> messages;
  std::size_t size = 0;  // bytes of all messages

  // The message has at least `skip` bytes. Throws std::bad_alloc.
  void add(const ipc::SubmitHead& head, PyObject* message);

  // False with an exception set.
  bool submit(ipc::BrokerIngress& ingress);

  void clear();
};

// The number of items of a submission; nullptr with ValueError or StreamerClosed set if it was refused.
PyObject* items_or_raise(const ipc::BrokerIngress::Submission& submission);

}  // namespace service_streamer::bindings
