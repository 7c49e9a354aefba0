#include "bindings/processes/process_backend.h"

#include <new>
#include <vector>

#include "bindings/batches/outputs.h"
#include "bindings/futures/call_result.h"
#include "bindings/futures/future.h"
#include "bindings/pickling/codec.h"
#include "bindings/python/errors.h"
#include "service_streamer/calls/serialized_call.h"

namespace service_streamer::bindings {
namespace {

using ipc::ResultKind;
using ipc::ResultRange;

PyObject* decode_range(const ResultRange& range, bool as_batch) {
  const ipc::Result& result = range.result;
  PyObject* outputs = decode(result.bytes, result.blocks.data(), result.blocks.size());
  if (outputs == nullptr || result.kind != ResultKind::kRows || as_batch) return outputs;
  PyObject* rows = as_list(outputs, range.count);
  Py_DECREF(outputs);
  return rows;
}

PyObject* decode_outputs(std::vector<ResultRange>& ranges, bool as_batch) {
  if (ranges.size() == 1) return decode_range(ranges.front(), as_batch);
  PyObject* list = PyList_New(0);
  for (const ResultRange& range : ranges) {
    if (list == nullptr) break;
    PyObject* outputs = decode_range(range, as_batch);
    if (outputs == nullptr || PyList_Append(list, outputs) < 0) Py_CLEAR(list);
    Py_XDECREF(outputs);
  }
  PyObject* joined = list != nullptr ? join_outputs(list, as_batch) : nullptr;
  Py_XDECREF(list);
  return joined;
}

PyObject* decode_error(const std::vector<ResultRange>& ranges) {
  for (const ResultRange& range : ranges) {
    if (range.result.kind != ResultKind::kError) continue;
    PyObject* packed = decode(range.result.bytes, range.result.blocks.data(), range.result.blocks.size());
    PyObject* error = packed != nullptr ? python::unpack_error(packed) : nullptr;
    Py_XDECREF(packed);
    return error;
  }
  return python::dropped();
}

// Turns what unpickling raised into the exception of the future. nullptr with it still set if the answer is not the
// cause: an interrupt may be Ctrl-C. SystemExit always comes from the answer.
PyObject* refuse_answer() {
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) || PyErr_ExceptionMatches(PyExc_MemoryError)) return nullptr;
  PyObject* error = take_exception();
  PyObject* refused = python::refuse_answer(error);
  Py_DECREF(error);
  return refused;
}

}  // namespace

NewCall ProcessBackend::make_call(PyObject* items) {
  auto* call = new (std::nothrow) ipc::LocalCall;
  if (call == nullptr) {
    PyErr_NoMemory();
    return {};
  }
  if (encode_items(items, call->payload, inline_items_)) return {call, &call->observers};
  call->unref();
  return {};
}

bool ProcessBackend::settle(FutureObject* future) {
  std::vector<ResultRange>& ranges = static_cast<ipc::LocalCall&>(*future->call).ranges;
  return settle_with(
      future,
      [&](PyObject*& value, PyObject*& error, PyObject*& /*order*/) {
        if (future->request->outcome == Outcome::kFailed) {
          error = decode_error(ranges);
        } else {
          value = decode_outputs(ranges, future->engine->output_batch);
        }
        if (value == nullptr && error == nullptr) error = refuse_answer();
      },
      [&] { ranges = {}; });
}

void ProcessBackend::raise_loss(const FutureObject* future) const {
  const std::string& note = static_cast<const ipc::LocalCall&>(*future->call).note;
  note.empty() ? CallBackend::raise_loss(future) : static_cast<void>(raise_lost(note));
}

Backend* make_process_backend(bool inline_items) {
  return new ProcessBackend(inline_items);
}

ProcessBackend* unattached_backend(EngineObject* engine) {
  auto* backend = dynamic_cast<ProcessBackend*>(engine->own_backend);
  if (backend == nullptr) {
    PyErr_SetString(PyExc_ValueError, "this engine is not for other processes: it needs remote=True");
  } else if (engine->backend != backend) {
    PyErr_SetString(PyExc_ValueError, "this engine has a Server, a ClientLink or a BrokerEgress already");
    backend = nullptr;
  }
  return backend;
}

bool check_inline(EngineObject* engine) {
  if (static_cast<ProcessBackend*>(engine->own_backend)->inline_items()) return true;
  PyErr_SetString(PyExc_ValueError, "the items of this engine cannot leave the machine: it needs inline=True");
  return false;
}

}  // namespace service_streamer::bindings
