#include "bindings/outputs.h"

#include <algorithm>
#include <utility>

#include "bindings/errors.h"

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

// The outputs as something whose slices are lists of single outputs.
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

// The first exception among the outputs of a part, borrowed, or nullptr.
PyObject* exception_in(PyObject* part) {
  if (!PyList_CheckExact(part) && !PyTuple_CheckExact(part)) return nullptr;
  PyObject** items = PySequence_Fast_ITEMS(part);
  PyObject** end = items + PySequence_Fast_GET_SIZE(part);
  PyObject** found = std::find_if(items, end, [](PyObject* item) { return PyExceptionInstance_Check(item); });
  return found != end ? *found : nullptr;
}

void drop(std::vector<PyObject*>& objects) {
  for (PyObject* object : objects) Py_XDECREF(object);
}

// The pieces of a request that was cut, in order and joined.
PyObject* join(std::vector<Piece>& pieces, bool as_batch) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  if (as_batch) {
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(pieces.size()));
    for (std::size_t i = 0; list != nullptr && i < pieces.size(); ++i) {
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), Py_NewRef(pieces[i].outputs));
    }
    PyObject* joined = list != nullptr ? call_helper("service_streamer._worker", "join_outputs", list) : nullptr;
    Py_XDECREF(list);
    return joined;
  }
  PyObject* joined = PyList_New(0);
  for (const Piece& piece : pieces) {
    if (joined == nullptr) break;
    const Py_ssize_t end = PyList_GET_SIZE(joined);
    if (PyList_SetSlice(joined, end, end, piece.outputs) < 0) Py_CLEAR(joined);
  }
  return joined;
}

}  // namespace

bool distribute(PyObject* outputs, Batch& batch, bool as_batch) {
  if (!check_size(outputs, batch.items)) return false;
  PyObject* sequence = as_batch ? Py_NewRef(outputs) : as_list(outputs, batch.items);
  if (sequence == nullptr) return false;

  // First everything that may run Python code; the futures are touched only when all of it worked.
  std::vector<PyObject*> slices;
  slices.reserve(batch.parts.size());
  Py_ssize_t begin = 0;
  for (const BatchPart& part : batch.parts) {
    const Py_ssize_t end = begin + static_cast<Py_ssize_t>(part.count);
    PyObject* slice;
    if (PyList_CheckExact(sequence)) {
      slice = PyList_GetSlice(sequence, begin, end);
    } else {
      slice = batch.parts.size() == 1 ? Py_NewRef(sequence) : PySequence_GetSlice(sequence, begin, end);
    }
    if (slice == nullptr) break;
    slices.push_back(slice);
    begin = end;
  }
  Py_DECREF(sequence);
  if (slices.size() != batch.parts.size()) {
    drop(slices);
    return false;
  }

  for (std::size_t i = 0; i < slices.size(); ++i) {
    BatchPart& part = batch.parts[i];
    FutureObject* future = future_of(*part.request);
    if (PyObject* error = exception_in(slices[i])) {
      part.failed = true;
      Py_XSETREF(future->outputs, Py_NewRef(error));
    } else if (part.count == part.request->size) {
      std::swap(future->outputs, slices[i]);
    } else {
      if (future->pieces == nullptr) future->pieces = new std::vector<Piece>;
      future->pieces->push_back({.begin = part.begin, .outputs = std::exchange(slices[i], nullptr)});
    }
  }
  drop(slices);
  return true;
}

void finish_value(FutureObject* future, bool as_batch) {
  if (future->pieces == nullptr) {
    std::swap(future->value, future->outputs);
    return;
  }
  future->value = join(*future->pieces, as_batch);
  if (future->value == nullptr) {
    PyObject *type, *traceback;
    PyErr_Fetch(&type, &future->exception, &traceback);
    PyErr_NormalizeException(&type, &future->exception, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
  }
  drop_pieces(future);
}

}  // namespace service_streamer::bindings
