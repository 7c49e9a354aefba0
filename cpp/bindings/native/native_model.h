#pragma once

#include <Python.h>

#include <memory>
#include <vector>

#include "service_streamer/native/model.h"
#include "service_streamer/native/tensor_call.h"

namespace service_streamer::bindings {

// A native model that another extension module gives to _core in a capsule. It converts between Python objects and
// tensors, so that _core does not need the library of the tensors.
class NativeModel {
 public:
  // The name of the capsule. Its number changes with each change of a type that both modules use.
  static constexpr const char* kCapsule = "service_streamer.native_model.4";

  virtual ~NativeModel() = default;

  // What the workers run.
  virtual std::shared_ptr<native::Model> model() = 0;

  // Needs the GIL. Reads the items of a request, a tuple; nullptr with an exception set that names what is wrong with
  // them.
  virtual native::ItemsRef read(PyObject* items) = 0;

  // Needs the GIL. The outputs as a Python object, a new reference: a list with one output for each item, or one array.
  // nullptr with an exception set.
  virtual PyObject* value_of(const std::vector<native::OutputRange>& ranges, bool as_batch) = 0;
};

}  // namespace service_streamer::bindings
