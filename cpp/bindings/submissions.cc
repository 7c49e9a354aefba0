#include "bindings/submissions.h"

#include "bindings/arguments.h"
#include "bindings/errors.h"
#include "bindings/parcels.h"

namespace service_streamer::bindings {
namespace {

using ipc::Inlet;

bool is_in(const Inlet::Submission& submission) {
  return submission.submitted == Inlet::Submitted::kYes;
}

PyObject* reason_of(const Inlet::Submission& submission) {
  const auto id = static_cast<unsigned long long>(submission.head.id);
  switch (submission.submitted) {
    case Inlet::Submitted::kMalformed:
      return PyUnicode_FromFormat("the body of request %llu is malformed", id);
    case Inlet::Submitted::kKnown:
      return PyUnicode_FromFormat("request %llu is there already", id);
    case Inlet::Submitted::kYes:
    case Inlet::Submitted::kClosed:
      break;
  }
  return PyUnicode_FromString("the streamer is closed");
}

}  // namespace

bool Submissions::add(PyObject* id, PyObject* body, PyObject* deadline, PyObject* priority) {
  Inlet::Submission submission;
  if (!id_from(id, submission.head.id) || !time_from(deadline, submission.head.deadline) ||
      !priority_from(priority, submission.head.priority)) {
    return false;
  }
  const Failure failure = attempt([&] {
    all.push_back(submission);
    bodies.push_back(body);
  });
  if (failure.raise()) return false;
  Py_INCREF(body);
  size += static_cast<std::size_t>(PyBytes_GET_SIZE(body));
  return true;
}

bool Submissions::read(PyObject* sequence) {
  PyObject* fast = PySequence_Fast(sequence, "a list of requests is wanted");
  if (fast == nullptr) return false;
  bool sound = true;
  for (Py_ssize_t i = 0; sound && i < PySequence_Fast_GET_SIZE(fast); ++i) {
    PyObject* tuple = PySequence_Fast_GET_ITEM(fast, i);
    PyObject *id, *body, *deadline, *priority;
    if (PyTuple_Check(tuple)) {
      sound =
          PyArg_ParseTuple(tuple, "OSOO", &id, &body, &deadline, &priority) != 0 && add(id, body, deadline, priority);
    } else {
      PyErr_Format(PyExc_TypeError, "a request must be a tuple, got %.200s", Py_TYPE(tuple)->tp_name);
      sound = false;
    }
  }
  Py_DECREF(fast);
  return sound;
}

bool Submissions::submit(Inlet& inlet) {
  const Failure failure = attempt_copying(size, [&] {
    for (std::size_t i = 0; i < bodies.size(); ++i) all[i].body = copy_of(bodies[i]);
    inlet.submit(all);
  });
  return !failure.raise();
}

void Submissions::clear() {
  for (PyObject* body : bodies) Py_DECREF(body);
  bodies.clear();
}

PyObject* items_or_raise(const Inlet::Submission& submission) {
  if (is_in(submission)) return PyLong_FromUnsignedLong(submission.items);
  PyObject* reason = reason_of(submission);
  if (reason == nullptr) return nullptr;
  if (submission.submitted == Inlet::Submitted::kClosed) {
    return raise_error("StreamerClosed", Py_BuildValue("(N)", reason));
  }
  PyErr_SetObject(PyExc_ValueError, reason);
  Py_DECREF(reason);
  return nullptr;
}

PyObject* items_or_reasons(const std::vector<Inlet::Submission>& submissions) {
  PyObject* list = PyList_New(0);
  for (std::size_t i = 0; list != nullptr && i < submissions.size(); ++i) {
    PyObject* entry = is_in(submissions[i]) ? PyLong_FromUnsignedLong(submissions[i].items) : reason_of(submissions[i]);
    if (entry == nullptr || PyList_Append(list, entry) < 0) Py_CLEAR(list);
    Py_XDECREF(entry);
  }
  return list;
}

}  // namespace service_streamer::bindings
