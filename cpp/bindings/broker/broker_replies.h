#pragma once

#include <Python.h>

#include <cstddef>
#include <vector>

#include "service_streamer/broker/forwarded_requests.h"

namespace service_streamer::bindings {

// Replies for a BrokerEgress, and the bytes objects that their bodies are copied from. The copy may run without the
// GIL, so it must be on the heap, and clear() must be called before it is deleted.
struct BrokerReplies {
  std::vector<ipc::ForwardedRequests::Answer> answers;
  std::vector<PyObject*> bodies;
  std::size_t size = 0;  // bytes of all bodies

  void copy_bodies();
  void clear();
};

// Reads a sequence of (id, begin, items, body), and leaves out ranges that no request can have; false with an exception
// set.
bool read_replies_from(PyObject* sequence, BrokerReplies& answers);

}  // namespace service_streamer::bindings
