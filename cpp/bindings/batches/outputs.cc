#include "bindings/batches/outputs.h"

#include <algorithm>
#include <numeric>

#include "bindings/python/errors.h"

namespace service_streamer::bindings {
namespace {

// Raises the OutputSizeMismatch of a return value that has another length, or none.
bool refuse_size(std::size_t expected, Py_ssize_t received, PyObject* outputs) {
  const char* type = Py_TYPE(outputs)->tp_name;
  const auto items = static_cast<Py_ssize_t>(expected);
  if (received >= 0) {
    PyObject* detail = PyUnicode_FromFormat("of type %.200s", type);
    raise_error("OutputSizeMismatch", detail != nullptr ? Py_BuildValue("(nnN)", items, received, detail) : nullptr);
  } else if (PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    PyObject* detail = PyUnicode_FromFormat("%.200s has no length", type);
    raise_error("OutputSizeMismatch", detail != nullptr ? Py_BuildValue("(nON)", items, Py_None, detail) : nullptr);
  }
  return false;
}

}  // namespace

bool check_size(PyObject* outputs, std::size_t expected) {
  if (PyUnicode_Check(outputs) || PyBytes_Check(outputs) || PyDict_Check(outputs) || PyAnySet_Check(outputs)) {
    PyObject* value = call_helper("service_streamer._messages", "short", outputs);
    if (value == nullptr) return false;
    raise_mistake(PyExc_TypeError, "outputs-that-are-no-sequence",
                  "predict_function must return a sequence with one output per item, got the %.200s %U: return a list",
                  Py_TYPE(outputs)->tp_name, value);
    Py_DECREF(value);
    return false;
  }
  const Py_ssize_t size = PyObject_Size(outputs);
  return size == static_cast<Py_ssize_t>(expected) || refuse_size(expected, size, outputs);
}

PyObject* as_list(PyObject* outputs, std::size_t expected) {
  if (PyList_CheckExact(outputs)) return Py_NewRef(outputs);
  PyObject* list = nullptr;
  if (!PyTuple_CheckExact(outputs) && PyObject_HasAttrString(outputs, "unbind")) {
    // A torch tensor: one call makes all rows, which is cheaper than an index operation for each.
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

PyObject* exception_in(std::span<PyObject* const> outputs) {
  const auto found = std::ranges::find_if(outputs, [](PyObject* output) { return PyExceptionInstance_Check(output); });
  return found != outputs.end() ? *found : nullptr;
}

PyObject* exception_in(PyObject* outputs) {
  if (!PyList_CheckExact(outputs) && !PyTuple_CheckExact(outputs)) return nullptr;
  return exception_in({PySequence_Fast_ITEMS(outputs), static_cast<std::size_t>(PySequence_Fast_GET_SIZE(outputs))});
}

void drop_references(std::vector<PyObject*>& objects) {
  for (PyObject* object : objects) Py_XDECREF(object);
  objects.clear();
}

PyObject* join_outputs(PyObject* pieces, bool as_batch) {
  if (as_batch) return call_helper("service_streamer._outputs", "join_outputs", pieces);
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
  drop_references(slices);
  return false;
}

}  // namespace service_streamer::bindings
