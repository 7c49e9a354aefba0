#include <Python.h>

#include <vector>

#include "bindings/engine/engine.h"
#include "bindings/futures/call_result.h"
#include "bindings/native/native_model.h"
#include "bindings/python/errors.h"
#include "service_streamer/native/tensor_call.h"

// The answer of a native model as Python objects, made by the first thread that asks for it.

namespace service_streamer::bindings {
namespace {

// As a Python callable would have raised it.
void raise_failure(const native::RunFailure& failure) {
  const char* message = failure.message.c_str();
  switch (failure.fault) {
    case native::Fault::kModel:
      PyErr_SetString(PyExc_RuntimeError, message);
      break;
    case native::Fault::kMemory:
      PyErr_SetString(PyExc_MemoryError, message);
      break;
    case native::Fault::kOutputs:
      raise_error("OutputSizeMismatch", Py_BuildValue("(LLs)", static_cast<long long>(failure.expected),
                                                      static_cast<long long>(failure.received), message));
      break;
  }
}

}  // namespace

bool settle_native(FutureObject* future) {
  auto& call = static_cast<native::TensorCall&>(*future->call);
  return settle_with(
      future,
      [&](PyObject*& value, PyObject*& error) {
        if (future->request->outcome == Outcome::kFailed) {
          raise_failure(call.failure);
        } else {
          value = future->engine->native->value_of(call.outputs, future->engine->output_batch);
        }
        // what ends this thread, rather than the request, is left where it is
        if (value == nullptr && PyErr_ExceptionMatches(PyExc_Exception)) error = take_exception();
      },
      [&] { std::vector<native::OutputRange>().swap(call.outputs); });
}

}  // namespace service_streamer::bindings
