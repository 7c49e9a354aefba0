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

bool refuse_number(const char* name, const char* rule, PyObject* value) {
  PyErr_Format(PyExc_ValueError, "%s must be a number of seconds%s, got %R", name, rule, value);
  return false;
}

bool number_from(PyObject* value, const char* name, double& number) {
  number = PyFloat_AsDouble(value);
  if (number != -1.0 || !PyErr_Occurred()) return true;
  if (PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Format(PyExc_TypeError, "%s must be a number of seconds, got %.200s", name, Py_TYPE(value)->tp_name);
  }
  return false;
}

}  // namespace

PyObject* items_from(PyObject* batch) {
  if (PyList_CheckExact(batch)) return PyList_AsTuple(batch);
  if (PyTuple_CheckExact(batch)) return Py_NewRef(batch);
  if (PyUnicode_Check(batch)) {
    PyErr_Format(PyExc_TypeError, "batch must be a sequence of items, got the str %R: did you mean [%R]?", batch, batch);
    return nullptr;
  }
  if (PyBytes_Check(batch) || PyByteArray_Check(batch)) return refuse_batch(batch, ": put it into a list");
  if (PyIter_Check(batch)) return refuse_batch(batch, ", which has no length: use list(...) or map(...)");
  if (!PySequence_Check(batch)) return refuse_batch(batch, "");
  const Py_ssize_t length = PyObject_Size(batch);
  if (length < 0) {
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

bool deadline_from(PyObject* timeout, TimePoint& deadline) {
  deadline = TimePoint::max();
  if (timeout == Py_None) return true;
  double seconds;
  if (!number_from(timeout, "timeout", seconds)) return false;
  if (std::isnan(seconds) || seconds < 0) return refuse_number("timeout", " >= 0", timeout);
  if (seconds < kForever) {
    deadline = Clock::now() + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }
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

bool seconds_from(PyObject* value, const char* name, Duration& duration) {
  double seconds;
  if (!number_from(value, name, seconds)) return false;
  if (!std::isfinite(seconds) || seconds < 0) return refuse_number(name, " >= 0", value);
  duration = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(seconds, kForever)));
  return true;
}

}  // namespace service_streamer::bindings
