#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <utility>

#include "bindings/futures/future.h"
#include "bindings/processes/process_backend.h"
#include "bindings/python/errors.h"
#include "service_streamer/base/mutex.h"
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
    std::string known;
    if (attempt([&] { known = note(); }).raise()) return nullptr;
    return PyUnicode_FromFormat("%s%s", known.empty() ? "" : ": ", known.c_str());
  }

  void retire() override { egress.stop(); }

  // Why requests are not answered, as far as the client knows.
  void set_note(std::string note) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    note_ = std::move(note);
  }

  ipc::BrokerEgress egress;

 private:
  std::string note() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return note_;
  }

  mutable Mutex mutex_;
  std::string note_ GUARDED_BY(mutex_);
};

bool make_broker_egress_type(PyObject* module);

}  // namespace service_streamer::bindings
