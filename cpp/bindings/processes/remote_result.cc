#include <Python.h>

#include <utility>

#include "bindings/engine/engine.h"
#include "bindings/futures/call_result.h"
#include "bindings/futures/future.h"
#include "bindings/futures/outputs.h"
#include "bindings/pickling/codec.h"
#include "bindings/python/errors.h"
#include "service_streamer/calls/serialized_call.h"

// The answer of a worker process as Python objects, made by the first thread that asks for it.

namespace service_streamer::bindings {
namespace {

using ipc::ResultKind;
using ipc::ResultRange;

PyObject* decode_piece(const ResultRange& piece, bool as_batch) {
  const ipc::Result& result = piece.result;
  PyObject* outputs = decode(result.bytes, result.blocks.data(), result.blocks.size());
  if (outputs == nullptr || result.kind != ResultKind::kRows || as_batch) return outputs;
  PyObject* rows = as_list(outputs, piece.count);
  Py_DECREF(outputs);
  return rows;
}

PyObject* decode_outputs(std::vector<ResultRange>& pieces, bool as_batch) {
  if (pieces.size() == 1) return decode_piece(pieces.front(), as_batch);
  PyObject* parts = PyList_New(0);
  for (const ResultRange& piece : pieces) {
    if (parts == nullptr) break;
    PyObject* outputs = decode_piece(piece, as_batch);
    if (outputs == nullptr || PyList_Append(parts, outputs) < 0) Py_CLEAR(parts);
    Py_XDECREF(outputs);
  }
  PyObject* joined = parts != nullptr ? join_outputs(parts, as_batch) : nullptr;
  Py_XDECREF(parts);
  return joined;
}

PyObject* decode_error(const std::vector<ResultRange>& pieces) {
  for (const ResultRange& piece : pieces) {
    if (piece.result.kind != ResultKind::kError) continue;
    PyObject* packed = decode(piece.result.bytes, piece.result.blocks.data(), piece.result.blocks.size());
    PyObject* error = packed != nullptr ? call_helper("service_streamer._pickle", "unpack_error", packed) : nullptr;
    Py_XDECREF(packed);
    return error;
  }
  return call_helper("service_streamer._pickle", "dropped", nullptr);
}

// What unpickling raised, as the exception that the future ends with. nullptr with it set if the answer is not to
// blame: an interrupt may be the user's Ctrl-C. An exit is always the answer's.
PyObject* refuse_answer() {
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) || PyErr_ExceptionMatches(PyExc_MemoryError)) return nullptr;
  PyObject* error = take_exception();
  PyObject* refused = call_helper("service_streamer._pickle", "refuse_answer", error);
  Py_DECREF(error);
  return refused;
}

}  // namespace

bool settle_remote(FutureObject* future) {
  std::vector<ResultRange>& pieces = static_cast<ipc::LocalCall&>(*future->call).pieces;
  return settle_with(
      future,
      [&](PyObject*& value, PyObject*& error) {
        if (future->request->outcome == Outcome::kFailed) {
          error = decode_error(pieces);
        } else {
          value = decode_outputs(pieces, future->engine->output_batch);
        }
        if (value == nullptr && error == nullptr) error = refuse_answer();
      },
      [&] { pieces = {}; });
}

}  // namespace service_streamer::bindings
