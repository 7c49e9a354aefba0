#pragma once

#include <Python.h>

#include "bindings/futures/backend.h"
#include "bindings/native/native_model.h"

namespace service_streamer::bindings {

// For workers that are native threads with a native model. The model reads the items and makes the Python objects of
// the result.
class NativeBackend final : public CallBackend {
 public:
  // From the capsule of a NativeModel; nullptr with an exception set.
  static NativeBackend* make(PyObject* capsule);
  ~NativeBackend() override { Py_DECREF(capsule_); }

  NativeModel& model() const { return model_; }

  bool settle(FutureObject* future) override;
  PyObject* take_batches(FutureObject* future) override;
  const char* workers() const override { return "native threads"; }

 protected:
  NewCall make_call(PyObject* items) override;

 private:
  NativeBackend(PyObject* capsule, NativeModel& model) : capsule_(Py_NewRef(capsule)), model_(model) {}

  PyObject* const capsule_;  // keeps the model
  NativeModel& model_;
};

}  // namespace service_streamer::bindings
