#include "bindings/broker/broker_bodies.h"

#include <algorithm>
#include <cmath>

#include "bindings/python/arguments.h"

namespace service_streamer::bindings {
namespace {

PyObject* seconds_of(TimePoint time) {
  if (time == TimePoint::max()) return Py_NewRef(Py_None);
  return PyFloat_FromDouble(seconds(time.time_since_epoch()));
}

}  // namespace

bool id_from(PyObject* number, std::uint64_t& id) {
  if (!PyLong_Check(number)) {
    PyErr_Format(PyExc_TypeError, "the number of a request must be an int, got %.200s", Py_TYPE(number)->tp_name);
    return false;
  }
  id = PyLong_AsUnsignedLongLong(number);
  return PyErr_Occurred() == nullptr;
}

bool ids_from(PyObject* sequence, std::vector<std::uint64_t>& ids) {
  PyObject* fast = PySequence_Fast(sequence, "a list of numbers of requests is wanted");
  if (fast == nullptr) return false;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
  bool read = !attempt([&] { ids.resize(static_cast<std::size_t>(count)); }).raise();
  for (Py_ssize_t i = 0; read && i < count; ++i) {
    read = id_from(PySequence_Fast_GET_ITEM(fast, i), ids[static_cast<std::size_t>(i)]);
  }
  Py_DECREF(fast);
  return read;
}

bool time_from(PyObject* seconds, TimePoint& time) {
  time = TimePoint::max();
  if (seconds == Py_None) return true;
  const double value = PyFloat_AsDouble(seconds);
  if (value == -1.0 && PyErr_Occurred() != nullptr) return false;
  if (std::isnan(value)) {
    PyErr_Format(PyExc_ValueError, "a deadline must be a number of seconds, got %R", seconds);
    return false;
  }
  const Duration since_start = duration_from(std::max(value, 0.0));
  if (!std::isinf(value)) time = TimePoint(since_start);
  return true;
}

PyObject* chunk_tuple(const ipc::Chunk& chunk) {
  PyObject* body = make_body(chunk.body_size(), [&](char* to) { chunk.write_body(to); });
  if (body == nullptr) return nullptr;
  PyObject* deadline = seconds_of(chunk.deadline);
  if (deadline == nullptr) {
    Py_DECREF(body);
    return nullptr;
  }
  return Py_BuildValue("(KIINiN)", static_cast<unsigned long long>(chunk.id), chunk.begin, chunk.items, deadline,
                       chunk.priority, body);
}

PyObject* id_list(const std::vector<std::uint64_t>& ids) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(ids.size()));
  for (std::size_t i = 0; list != nullptr && i < ids.size(); ++i) {
    PyObject* id = PyLong_FromUnsignedLongLong(ids[i]);
    if (id == nullptr) {
      Py_CLEAR(list);
    } else {
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), id);
    }
  }
  return list;
}

}  // namespace service_streamer::bindings
