#include "bindings/futures/outputs.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "bindings/python/errors.h"

namespace service_streamer::bindings {
namespace {

bool refuse_size(std::size_t expected, Py_ssize_t received, PyObject* outputs) {
  if (received >= 0) {
    raise_error("OutputSizeMismatch", Py_BuildValue("(nns)", static_cast<Py_ssize_t>(expected), received, ""));
  } else if (PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    PyObject* detail = PyUnicode_FromFormat("%.200s has no length", Py_TYPE(outputs)->tp_name);
    raise_error("OutputSizeMismatch", detail != nullptr
                                          ? Py_BuildValue("(nON)", static_cast<Py_ssize_t>(expected), Py_None, detail)
                                          : nullptr);
  }
  return false;
}

bool check_size(PyObject* outputs, std::size_t expected) {
  if (PyUnicode_Check(outputs) || PyBytes_Check(outputs) || PyDict_Check(outputs) || PyAnySet_Check(outputs)) {
    PyErr_Format(PyExc_TypeError, "predict_function must return a sequence with one output for each item, got %.200s",
                 Py_TYPE(outputs)->tp_name);
    return false;
  }
  const Py_ssize_t size = PyObject_Size(outputs);
  return size == static_cast<Py_ssize_t>(expected) || refuse_size(expected, size, outputs);
}

void drop(std::vector<PyObject*>& objects) {
  for (PyObject* object : objects) Py_XDECREF(object);
}

// The pieces of a future in order, as a list.
PyObject* list_of(std::vector<OutputRange>& pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const OutputRange& a, const OutputRange& b) { return a.begin < b.begin; });
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(pieces.size()));
  for (std::size_t i = 0; list != nullptr && i < pieces.size(); ++i) {
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), Py_NewRef(pieces[i].outputs));
  }
  return list;
}

// The first exception among `count` outputs, borrowed, or nullptr.
PyObject* exception_among(PyObject** outputs, Py_ssize_t count) {
  PyObject** end = outputs + count;
  PyObject** found = std::find_if(outputs, end, [](PyObject* output) { return PyExceptionInstance_Check(output); });
  return found != end ? *found : nullptr;
}

void fail_with(RequestRange& part, PyObject* error) {
  part.failed = true;
  Py_XSETREF(future_of(*part.request)->outputs, Py_NewRef(error));
}

// Puts single outputs in the places of their items, in the lists that their callers brought along. Allocates nothing, and so no
// garbage collection comes between two batches; and the batch still has the items, so that nothing of theirs runs here.
void fill_lists(PyObject* outputs, Batch& batch) {
  PyObject** next = PySequence_Fast_ITEMS(outputs);
  for (RequestRange& part : batch.parts) {
    if (PyObject* error = exception_among(next, part.count)) {
      fail_with(part, error);
    } else {
      PyObject** own = PySequence_Fast_ITEMS(future_of(*part.request)->value) + part.begin;
      for (std::uint32_t i = 0; i < part.count; ++i) Py_SETREF(own[i], Py_NewRef(next[i]));
    }
    next += part.count;
  }
}

}  // namespace

PyObject* as_list(PyObject* outputs, std::size_t expected) {
  if (PyList_CheckExact(outputs)) return Py_NewRef(outputs);
  PyObject* list = nullptr;
  if (!PyTuple_CheckExact(outputs) && PyObject_HasAttrString(outputs, "unbind")) {
    // A torch tensor: one call cuts all rows, at a third of the price of indexing each.
    PyObject* rows = PyObject_CallMethod(outputs, "unbind", "i", 0);
    if (rows != nullptr) list = PySequence_List(rows);
    Py_XDECREF(rows);
  } else {
    list = PySequence_List(outputs);
  }
  if (list != nullptr && PyList_GET_SIZE(list) != static_cast<Py_ssize_t>(expected)) {
    refuse_size(expected, PyList_GET_SIZE(list), list);
    Py_CLEAR(list);
  }
  return list;
}

PyObject* exception_in(PyObject* part) {
  if (!PyList_CheckExact(part) && !PyTuple_CheckExact(part)) return nullptr;
  return exception_among(PySequence_Fast_ITEMS(part), PySequence_Fast_GET_SIZE(part));
}

PyObject* join_outputs(PyObject* pieces, bool as_batch) {
  if (as_batch) return call_helper("service_streamer._worker", "join_outputs", pieces);
  PyObject* joined = PyList_New(0);
  for (Py_ssize_t i = 0; joined != nullptr && i < PyList_GET_SIZE(pieces); ++i) {
    const Py_ssize_t end = PyList_GET_SIZE(joined);
    if (PyList_SetSlice(joined, end, end, PyList_GET_ITEM(pieces, i)) < 0) Py_CLEAR(joined);
  }
  return joined;
}

bool cut_outputs(PyObject* outputs, std::span<const std::uint32_t> counts, bool as_batch,
                 std::vector<PyObject*>& slices) {
  const std::size_t expected = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  if (!check_size(outputs, expected)) return false;
  PyObject* sequence = as_batch ? Py_NewRef(outputs) : as_list(outputs, expected);
  if (sequence == nullptr) return false;
  slices.reserve(counts.size());
  Py_ssize_t begin = 0;
  for (const std::uint32_t count : counts) {
    const Py_ssize_t end = begin + static_cast<Py_ssize_t>(count);
    PyObject* slice;
    if (PyList_CheckExact(sequence)) {
      slice = PyList_GetSlice(sequence, begin, end);
    } else {
      slice = counts.size() == 1 ? Py_NewRef(sequence) : PySequence_GetSlice(sequence, begin, end);
    }
    if (slice == nullptr) break;
    slices.push_back(slice);
    begin = end;
  }
  Py_DECREF(sequence);
  if (slices.size() == counts.size()) return true;
  drop(slices);
  slices.clear();
  return false;
}

bool distribute(PyObject* outputs, Batch& batch, bool as_batch) {
  if (!as_batch) {
    PyObject* list = check_size(outputs, batch.items) ? as_list(outputs, batch.items) : nullptr;
    if (list == nullptr) return false;
    fill_lists(list, batch);
    Py_DECREF(list);
    return true;
  }

  // First everything that may run Python code; the futures are touched only when all of it worked.
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
  drop(slices);
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
