#pragma once

#include <Python.h>

#include <cstdint>

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

  ipc::BrokerEgress egress;
};

bool make_broker_egress_type(PyObject* module);

}  // namespace service_streamer::bindings
