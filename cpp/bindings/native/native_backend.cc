#include "bindings/native/native_backend.h"

#include <utility>
#include <vector>

#include "bindings/futures/call_result.h"
#include "bindings/futures/engine_object.h"
#include "bindings/futures/future.h"
#include "bindings/python/contexts.h"
#include "bindings/python/errors.h"
#include "service_streamer/native/tensor_call.h"

namespace service_streamer::bindings {
namespace {

// Raises what a Python model would have raised.
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
      raise_error(python::output_size_mismatch, Py_BuildValue("(LLs)", static_cast<long long>(failure.expected),
                                                              static_cast<long long>(failure.received), message));
      break;
  }
}

// Puts each tensor of the outputs of a batch into the caller's order, which is then done. `value` becomes nullptr with
// an exception set if that fails.
void put_parts_in_order(PyObject*& value, PyObject*& order) {
  Py_SETREF(value, python::parts_in_order(value, order));
  if (value != nullptr) Py_CLEAR(order);
}

PyObject* contexts_of(const native::BatchRecord& record) {
  PyObject* list = PyList_New(0);
  for (const native::BatchRecord::Traced& request : record.traced) {
    if (list == nullptr) break;
    if (!append_context(list, *request.context, request.items, request.queue_time, request.first)) Py_CLEAR(list);
  }
  return list;
}

PyObject* tuple_of(const native::BatchRecord& record) {
  PyObject* contexts = contexts_of(record);
  if (contexts == nullptr) return nullptr;
  const TimePoint now = Clock::now();
  return Py_BuildValue("(Nnnsdddz)", contexts, static_cast<Py_ssize_t>(record.items),
                       static_cast<Py_ssize_t>(record.requests), to_string(record.reason), seconds(record.age),
                       seconds(now - record.begin), seconds(now - record.end),
                       record.error.empty() ? nullptr : record.error.c_str());
}

}  // namespace

NativeBackend* NativeBackend::make(PyObject* capsule) {
  auto* model = static_cast<NativeModel*>(PyCapsule_GetPointer(capsule, NativeModel::kCapsule));
  return model != nullptr ? new NativeBackend(capsule, *model) : nullptr;
}

NewCall NativeBackend::make_call(PyObject* items) {
  native::TensorCall* call = nullptr;
  if (native::ItemsRef read = model_.read(items)) {
    const auto size = static_cast<std::uint32_t>(PyTuple_GET_SIZE(items));
    attempt([&] { call = new native::TensorCall(std::move(read), size); }).raise();
  }
  return {call, call != nullptr ? &call->observers : nullptr};
}

bool NativeBackend::settle(FutureObject* future) {
  auto& call = static_cast<native::TensorCall&>(*future->call);
  return settle_with(
      future,
      [&](PyObject*& value, PyObject*& error, PyObject*& order) {
        if (future->request->outcome == Outcome::kFailed) {
          raise_failure(call.failure);
        } else {
          value = model_.value_of(call.outputs, future->engine->output_batch);
          if (value != nullptr && order != nullptr && future->engine->output_batch) put_parts_in_order(value, order);
        }
        // KeyboardInterrupt and SystemExit are meant for this thread, not for the request.
        if (value == nullptr && PyErr_ExceptionMatches(PyExc_Exception)) error = take_exception();
      },
      [&] { std::vector<native::OutputRange>().swap(call.outputs); });
}

PyObject* NativeBackend::take_batches(FutureObject* future) {
  PyObject* list = PyList_New(0);
  if (future->call == nullptr) return list;  // the request had no items
  for (const auto& record : static_cast<native::TensorCall&>(*future->call).take_records()) {
    if (list == nullptr || !record->claim()) continue;
    PyObject* tuple = tuple_of(*record);
    if (tuple == nullptr || PyList_Append(list, tuple) < 0) Py_CLEAR(list);
    Py_XDECREF(tuple);
  }
  return list;
}

}  // namespace service_streamer::bindings
