#include "bindings/broker/submissions.h"

#include "bindings/broker/broker_bodies.h"
#include "bindings/python/errors.h"

namespace service_streamer::bindings {

using ipc::BrokerIngress;

void Submissions::add(const ipc::SubmitHead& head, PyObject* message) {
  all.push_back({.head = head, .body = {}});
  messages.push_back(message);
  Py_INCREF(message);
  size += static_cast<std::size_t>(PyBytes_GET_SIZE(message));
}

bool Submissions::submit(BrokerIngress& ingress) {
  const CaughtError failure = attempt_copying(size, [&] {
    for (std::size_t i = 0; i < messages.size(); ++i) all[i].body = copy_of(messages[i], skip);
    ingress.submit(all);
  });
  return !failure.raise();
}

void Submissions::clear() {
  for (PyObject* message : messages) Py_DECREF(message);
  messages.clear();
}

PyObject* items_or_raise(const BrokerIngress::Submission& submission) {
  const auto id = static_cast<unsigned long long>(submission.head.id);
  switch (submission.submitted) {
    case BrokerIngress::SubmitStatus::kAccepted:
      return PyLong_FromUnsignedLong(submission.items);
    case BrokerIngress::SubmitStatus::kMalformed:
      return PyErr_Format(PyExc_ValueError, "the body of request %llu is malformed", id);
    case BrokerIngress::SubmitStatus::kUnknownTenant:
      return PyErr_Format(PyExc_ValueError, "the tenant of request %llu is not in tenants", id);
    case BrokerIngress::SubmitStatus::kDuplicate:
      return PyErr_Format(PyExc_ValueError, "request %llu is there already", id);
    case BrokerIngress::SubmitStatus::kClosed:
      break;
  }
  return raise_message(python::streamer_closed, "the streamer is closed");
}

}  // namespace service_streamer::bindings
