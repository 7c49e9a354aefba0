#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

#include "bindings/futures/future.h"
#include "bindings/processes/process_backend.h"
#include "service_streamer/broker/broker_egress.h"

namespace service_streamer::bindings {

// The back end of an engine whose requests are sent over a broker. Nothing comes back but results, so a request that
// was sent counts as waiting, and it can be cancelled.
class EgressBackend final : public ProcessBackend {
 public:
  EgressBackend(Engine& engine, std::uint32_t chunk_size) : ProcessBackend(true), egress(engine, chunk_size) {}

  bool is_running(const FutureObject*) const override { return false; }

  bool cancel(FutureObject* future) override {
    end_future(future, Outcome::kCancelled, true);
    return true;
  }

  PyObject* obstacle(const FutureObject*) const override {
    return PyUnicode_FromFormat("%s%s", note.empty() ? "" : ": ", note.c_str());
  }

  ipc::BrokerEgress egress;
  std::string note;  // why requests are not answered, as far as the client knows; with the GIL
};

bool make_broker_egress_type(PyObject* module);

}  // namespace service_streamer::bindings
