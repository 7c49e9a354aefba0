#include "bindings/engine/distribute.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/batches/outputs.h"
#include "bindings/python/errors.h"

namespace service_streamer::bindings {
namespace {

// The pieces of a future as a list, in order.
PyObject* list_of(std::vector<OutputRange>& pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const OutputRange& a, const OutputRange& b) { return a.begin < b.begin; });
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(pieces.size()));
  for (std::size_t i = 0; list != nullptr && i < pieces.size(); ++i) {
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), Py_NewRef(pieces[i].outputs));
  }
  return list;
}

void fail_with(RequestRange& part, PyObject* error) {
  part.failed = true;
  Py_XSETREF(future_of(*part.request)->outputs, Py_NewRef(error));
}

// Replaces the items in the callers' lists by their outputs. Allocates nothing, so no garbage collection comes between
// two batches. The batch still refers to the items, so no destructor of theirs runs here.
void fill_lists(PyObject* outputs, Batch& batch) {
  PyObject** next = PySequence_Fast_ITEMS(outputs);
  for (RequestRange& part : batch.parts) {
    if (PyObject* error = exception_in({next, part.count})) {
      fail_with(part, error);
    } else {
      PyObject** own = PySequence_Fast_ITEMS(future_of(*part.request)->value) + part.begin;
      for (std::uint32_t i = 0; i < part.count; ++i) Py_SETREF(own[i], Py_NewRef(next[i]));
    }
    next += part.count;
  }
}

}  // namespace

bool distribute(PyObject* outputs, Batch& batch, bool as_batch) {
  if (!as_batch) {
    PyObject* list = check_size(outputs, batch.items) ? as_list(outputs, batch.items) : nullptr;
    if (list == nullptr) return false;
    fill_lists(list, batch);
    Py_DECREF(list);
    return true;
  }

  // Everything that may run Python code comes first: the futures change only if all of it worked.
  std::vector<std::uint32_t> counts(batch.parts.size());
  std::transform(batch.parts.begin(), batch.parts.end(), counts.begin(),
                 [](const RequestRange& part) { return part.count; });
  std::vector<PyObject*> slices;
  if (!cut_outputs(outputs, counts, true, slices)) return false;

  for (std::size_t i = 0; i < slices.size(); ++i) {
    RequestRange& part = batch.parts[i];
    FutureObject* future = future_of(*part.request);
    if (PyObject* error = exception_in(slices[i])) {
      fail_with(part, error);
    } else if (part.count == part.request->size) {
      std::swap(future->outputs, slices[i]);
    } else {
      if (future->pieces == nullptr) future->pieces = new std::vector<OutputRange>;
      future->pieces->push_back({.begin = part.begin, .outputs = std::exchange(slices[i], nullptr)});
    }
  }
  drop_references(slices);
  return true;
}

void finish_value(FutureObject* future, bool as_batch) {
  if (!as_batch) return;
  if (future->pieces == nullptr) {
    std::swap(future->value, future->outputs);
    return;
  }
  PyObject* pieces = list_of(*future->pieces);
  future->value = pieces != nullptr ? join_outputs(pieces, true) : nullptr;
  Py_XDECREF(pieces);
  if (future->value == nullptr) future->exception = take_exception();
  drop_pieces(future);
}

}  // namespace service_streamer::bindings
