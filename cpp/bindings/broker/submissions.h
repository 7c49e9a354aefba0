#pragma once

#include <Python.h>

#include <cstddef>
#include <vector>

#include "service_streamer/broker/broker_ingress.h"

namespace service_streamer::bindings {

// Requests for an BrokerIngress as they were given, and the bytes objects that their bodies are copied from: all but so many bytes at the
// beginning of each. Lies on the heap, for much is copied without the GIL, and is to be cleared before it goes.
struct Submissions {
  explicit Submissions(std::size_t skipped = 0) : skip(skipped) {}

  const std::size_t skip;
  std::vector<ipc::BrokerIngress::Submission> all;
  std::vector<PyObject*> messages;
  std::size_t size = 0;  // bytes of all messages

  // Of at least as many bytes as are skipped. Throws std::bad_alloc.
  void add(const ipc::SubmitHead& head, PyObject* message);

  // False with an exception set.
  bool submit(ipc::BrokerIngress& ingress);

  void clear();
};

// What became of one: its number of items, or nullptr with ValueError or StreamerClosed set.
PyObject* items_or_raise(const ipc::BrokerIngress::Submission& submission);

}  // namespace service_streamer::bindings
