#include "bindings/arguments.h"

#include <algorithm>
#include <climits>
#include <cmath>

namespace service_streamer::bindings {
namespace {

// Longer waits are for ever: a century fits into 63 bits of nanoseconds.
constexpr double kForever = 3e9;

PyObject* refuse_batch(PyObject* batch, const char* hint) {
  PyErr_Format(PyExc_TypeError, "batch must be a sequence of items, got %.200s%s", Py_TYPE(batch)->tp_name, hint);
  return nullptr;
}

}  // namespace

PyObject* items_from(PyObject* batch) {
  if (PyList_CheckExact(batch)) return PyList_AsTuple(batch);
  if (PyTuple_CheckExact(batch)) return Py_NewRef(batch);
  if (PyUnicode_Check(batch)) {
    PyErr_Format(PyExc_TypeError, "batch must be a sequence of items, got the str %R: did you mean [%R]?", batch,
                 batch);
    return nullptr;
  }
  if (PyBytes_Check(batch) || PyByteArray_Check(batch)) return refuse_batch(batch, ": put it into a list");
  if (PyIter_Check(batch)) return refuse_batch(batch, ", which has no length: use list(...) or map(...)");
  if (!PySequence_Check(batch)) return refuse_batch(batch, "");
  const Py_ssize_t length = PyObject_Size(batch);
  if (length < 0) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return nullptr;
    PyErr_Clear();
    return refuse_batch(batch, ", which has no length");
  }
  PyObject* items = PySequence_Tuple(batch);
  if (items != nullptr && PyTuple_GET_SIZE(items) != length) {
    PyErr_Format(PyExc_TypeError, "batch must be a sequence of items, got %.200s with len() %zd that iterates over %zd",
                 Py_TYPE(batch)->tp_name, length, PyTuple_GET_SIZE(items));
    Py_CLEAR(items);
  }
  return items;
}

bool deadline_from(PyObject* timeout, TimePoint& deadline, Negative negative) {
  deadline = TimePoint::max();
  if (timeout == Py_None) return true;
  const double seconds = PyFloat_AsDouble(timeout);
  if (seconds == -1.0 && PyErr_Occurred()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Format(PyExc_TypeError, "timeout must be a number of seconds, got %.200s", Py_TYPE(timeout)->tp_name);
    }
    return false;
  }
  if (std::isnan(seconds) || (seconds < 0 && negative == Negative::kIsWrong)) {
    PyErr_Format(PyExc_ValueError, "timeout must be a number of seconds >= 0, got %R", timeout);
    return false;
  }
  if (seconds < kForever) deadline = Clock::now() + duration_from(std::max(seconds, 0.0));
  return true;
}

bool priority_from(PyObject* value, int& priority) {
  if (!PyIndex_Check(value)) {
    PyErr_Format(PyExc_TypeError, "priority must be an int, got %.200s", Py_TYPE(value)->tp_name);
    return false;
  }
  int overflow = 0;
  PyObject* index = PyNumber_Index(value);
  if (index == nullptr) return false;
  const long number = PyLong_AsLongAndOverflow(index, &overflow);
  Py_DECREF(index);
  if (overflow != 0 || number < INT_MIN || number > INT_MAX) {
    PyErr_Format(PyExc_ValueError, "priority must fit into 32 bits, got %R", value);
    return false;
  }
  priority = static_cast<int>(number);
  return true;
}

Duration duration_from(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(seconds, kForever)));
}

}  // namespace service_streamer::bindings
