#pragma once

#include <Python.h>

#include <cstddef>
#include <vector>

#include "service_streamer/broker/forwarded_requests.h"

namespace service_streamer::bindings {

// BrokerReplies to an BrokerEgress's requests as they were given, and the bytes objects that their bodies are to be copied from. Lies on the
// heap where that is done without the GIL, and is to be cleared before it goes.
struct BrokerReplies {
  std::vector<ipc::ForwardedRequests::Answer> answers;
  std::vector<PyObject*> bodies;
  std::size_t size = 0;  // bytes of all bodies

  void copy_bodies();
  void clear();
};

// Those of a sequence of (id, begin, items, body), but for chunks that no request can have; false with an exception set.
bool read_replies_from(PyObject* sequence, BrokerReplies& answers);

}  // namespace service_streamer::bindings
