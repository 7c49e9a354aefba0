#pragma once

#include <Python.h>

#include <memory>
#include <vector>

#include "service_streamer/native/model.h"
#include "service_streamer/native/tensor_call.h"

namespace service_streamer::bindings {

// A native model as another extension module gives it to _core, in a capsule. It knows tensors and Python's objects; _core knows
// neither of its libraries.
class NativeModel {
 public:
  // The name of the capsule; its number changes with any of the types that both modules know.
  static constexpr const char* kCapsule = "service_streamer.native_model.2";

  virtual ~NativeModel() = default;

  // What the workers run.
  virtual std::shared_ptr<native::Model> model() = 0;

  // With the GIL: the items of a request, a tuple; nullptr with an exception set that names what is wrong with them.
  virtual native::ItemsRef read(PyObject* items) = 0;

  // With the GIL: what the caller gets of these outputs, a new reference: a list with one for each item, or the whole. nullptr with
  // an exception set.
  virtual PyObject* value_of(const std::vector<native::OutputRange>& ranges, bool as_batch) = 0;
};

}  // namespace service_streamer::bindings
