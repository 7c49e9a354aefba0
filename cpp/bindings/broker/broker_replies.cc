#include "bindings/broker/broker_replies.h"

#include <cstdint>

#include "bindings/broker/broker_bodies.h"
#include "bindings/python/errors.h"

namespace service_streamer::bindings {
namespace {

bool add_answer(BrokerReplies& answers, PyObject* tuple) {
  PyObject *number, *body;
  Py_ssize_t begin, items;
  ipc::ForwardedRequests::Answer answer;
  if (!PyTuple_Check(tuple)) {
    PyErr_Format(PyExc_TypeError, "an answer must be a tuple, got %.200s", Py_TYPE(tuple)->tp_name);
    return false;
  }
  if (!PyArg_ParseTuple(tuple, "OnnS", &number, &begin, &items, &body) || !id_from(number, answer.id)) return false;
  if (begin < 0 || begin > UINT32_MAX || items < 1 || items > UINT32_MAX) return true;
  answer.begin = static_cast<std::uint32_t>(begin);
  answer.items = static_cast<std::uint32_t>(items);
  const CaughtError failure = attempt([&] {
    answers.answers.push_back(answer);
    answers.bodies.push_back(body);
  });
  if (failure.raise()) return false;
  Py_INCREF(body);
  answers.size += static_cast<std::size_t>(PyBytes_GET_SIZE(body));
  return true;
}

}  // namespace

void BrokerReplies::copy_bodies() {
  for (std::size_t i = 0; i < bodies.size(); ++i) answers[i].body = copy_of(bodies[i]);
}

void BrokerReplies::clear() {
  for (PyObject* body : bodies) Py_DECREF(body);
  bodies.clear();
  answers.clear();
}

bool read_replies_from(PyObject* sequence, BrokerReplies& answers) {
  PyObject* fast = PySequence_Fast(sequence, "a list of answers is wanted");
  if (fast == nullptr) return false;
  bool read = true;
  for (Py_ssize_t i = 0; read && i < PySequence_Fast_GET_SIZE(fast); ++i) {
    read = add_answer(answers, PySequence_Fast_GET_ITEM(fast, i));
  }
  Py_DECREF(fast);
  return read;
}

}  // namespace service_streamer::bindings
