#pragma once

#include <Python.h>

#include "bindings/futures/backend.h"
#include "bindings/futures/engine_object.h"

namespace service_streamer::bindings {

// For workers that are other processes. The caller pickles its items, and the first thread that asks for the result
// unpickles it.
class ProcessBackend : public CallBackend {
 public:
  // `inline_items`: no item is put into shared memory, so requests can go to other machines.
  explicit ProcessBackend(bool inline_items) : inline_items_(inline_items) {}

  bool inline_items() const { return inline_items_; }

  bool settle(FutureObject* future) final;
  void raise_loss(const FutureObject* future) const final;
  const char* workers() const final { return "processes"; }

 protected:
  NewCall make_call(PyObject* items) final;

 private:
  const bool inline_items_;
};

// The back end of a new engine for processes. nullptr with ImportError set: this build has none (no_transports.cc).
Backend* make_process_backend(bool inline_items);

// The back end of an engine for processes to which nothing is attached yet; nullptr with ValueError set.
ProcessBackend* unattached_backend(EngineObject* engine);

// Whether items of the engine, which is for processes, can go to other machines; false with ValueError set.
bool check_inline(EngineObject* engine);

}  // namespace service_streamer::bindings
