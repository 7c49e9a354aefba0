#include "bindings/batches/outputs.h"

#include <algorithm>
#include <numeric>

#include "bindings/python/free_threading.h"
#include "bindings/python/from_core.h"
#include "bindings/python/libraries.h"

namespace service_streamer::bindings {
namespace {

// Whether the type needs no look by Python code: what it has are the outputs, one for each item.
bool is_plain(PyObject* outputs) {
  if (PyList_CheckExact(outputs)) return true;
  if (PyTuple_CheckExact(outputs)) {
    // arrays in a tuple may be several outputs
    return PyTuple_GET_SIZE(outputs) == 0 || !PyObject_HasAttrString(PyTuple_GET_ITEM(outputs, 0), "shape");
  }
  return Py_TYPE(outputs) == numpy_array_class() || Py_TYPE(outputs) == torch_tensor_class();
}

bool has_size(PyObject* outputs, std::size_t expected) {
  const Py_ssize_t size = PyObject_Size(outputs);
  if (size < 0) PyErr_Clear();
  return size == static_cast<Py_ssize_t>(expected);
}

// Calls the function with the outputs and a number.
PyObject* call_with(const PythonObject& function, PyObject* outputs, std::size_t expected) {
  PyObject* number = PyLong_FromSize_t(expected);
  PyObject* result = number != nullptr ? function(outputs, number) : nullptr;
  Py_XDECREF(number);
  return result;
}

// Raises why the outputs are not `expected` ones, if so.
bool check(PyObject* outputs, std::size_t expected) {
  if (is_plain(outputs) && has_size(outputs, expected)) return true;
  PyObject* none = call_with(python::check_outputs, outputs, expected);
  Py_XDECREF(none);
  return none != nullptr;
}

// The slices of outputs that only Python code can cut.
bool cut_by_helper(PyObject* outputs, std::span<const std::uint32_t> counts, std::vector<PyObject*>& slices) {
  PyObject* sizes = PyList_New(static_cast<Py_ssize_t>(counts.size()));
  for (std::size_t i = 0; sizes != nullptr && i < counts.size(); ++i) {
    PyObject* count = PyLong_FromUnsignedLong(counts[i]);
    if (count == nullptr) {
      Py_CLEAR(sizes);
    } else {
      PyList_SET_ITEM(sizes, static_cast<Py_ssize_t>(i), count);
    }
  }
  PyObject* cut = sizes != nullptr ? python::cut_outputs(outputs, sizes) : nullptr;
  Py_XDECREF(sizes);
  if (cut == nullptr) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(cut); ++i) slices.push_back(Py_NewRef(PyList_GET_ITEM(cut, i)));
  Py_DECREF(cut);
  return true;
}

}  // namespace

PyObject* as_list(PyObject* outputs, std::size_t expected) {
  if (!is_plain(outputs)) return call_with(python::output_rows, outputs, expected);
  if (PyList_CheckExact(outputs)) {
    // Without a GIL the model may change its list meanwhile.
    PyObject* list = kHasGil ? Py_NewRef(outputs) : PyList_GetSlice(outputs, 0, PY_SSIZE_T_MAX);
    if (list != nullptr && !check(list, expected)) Py_CLEAR(list);
    return list;
  }
  if (!check(outputs, expected)) return nullptr;
  if (Py_TYPE(outputs) != torch_tensor_class()) return PySequence_List(outputs);
  // One call makes all rows, which is cheaper than an index operation for each.
  PyObject* rows = PyObject_CallMethod(outputs, "unbind", "i", 0);
  PyObject* list = rows != nullptr ? PySequence_List(rows) : nullptr;
  Py_XDECREF(rows);
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
  if (as_batch) return python::join_outputs(pieces);
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
  if (as_batch && !is_plain(outputs)) return cut_by_helper(outputs, counts, slices);
  if (as_batch && !check(outputs, expected)) return false;
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
