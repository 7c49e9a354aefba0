#pragma once

#include <Python.h>

#include "bindings/futures/backend.h"
#include "bindings/python/deferred_wake.h"

namespace service_streamer::bindings {

// For workers that are Python threads of this process. A request is part of its future, and its items are not copied.
// The thread that ends a request also runs its callbacks.
class ThreadBackend final : public Backend {
 public:
  FutureObject* make_request(PyTypeObject* type, EngineObject* engine, PyObject* batch) override;
  void publish(EndedRequests& ended) override;
  void let_go(ReleasedRequests& released) override;
  PyObject* obstacle(const FutureObject* future) const override;
  bool wakes_worker_late() const override { return true; }
  const char* workers() const override { return nullptr; }
};

// ThreadBackend::publish(). `later` wakes the caller if there is only one, and no Python code runs here; nullptr: all
// callers are woken at once.
void publish_ended(EndedRequests& ended, DeferredWake* later);

}  // namespace service_streamer::bindings
