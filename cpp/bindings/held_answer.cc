#include <map>
#include <optional>
#include <utility>

#include "bindings/errors.h"
#include "bindings/held.h"
#include "bindings/parcels.h"
#include "service_streamer/ipc/parcel.h"

// Results that go back.

namespace service_streamer::bindings {
namespace {

using ipc::HeldEntries;
using ipc::RequestHead;

// Answers that go to the broker at once.
struct Part {
  std::map<ipc::ClientId, ipc::ClientReply> replies;
  std::vector<std::string> ids;
  std::size_t size = 0;  // bytes of the bodies
};

PyObject* message_list(const Part& part) {
  PyObject* list = PyList_New(0);
  bool whole = list != nullptr;
  for (auto reply = part.replies.begin(); whole && reply != part.replies.end(); ++reply) {
    PyObject* message = make_body(reply->second.size(), [&](char* to) { reply->second.write(to); });
    PyObject* client = message != nullptr ? bytes_of({reply->first.data(), reply->first.size()}) : nullptr;
    if (client == nullptr) Py_CLEAR(message);
    whole = append(list, message != nullptr ? Py_BuildValue("(NN)", client, message) : nullptr);
  }
  if (!whole) Py_CLEAR(list);
  return list;
}

// [([(client, message)], [id])]
PyObject* part_list(const std::vector<Part>& parts) {
  PyObject* list = PyList_New(0);
  for (std::size_t i = 0; list != nullptr && i < parts.size(); ++i) {
    PyObject* messages = message_list(parts[i]);
    PyObject* ids = messages != nullptr ? bytes_list(parts[i].ids) : nullptr;
    if (ids == nullptr) Py_CLEAR(messages);
    if (!append(list, messages != nullptr ? Py_BuildValue("(NN)", messages, ids) : nullptr)) Py_CLEAR(list);
  }
  return list;
}

// (id, client, request, begin, items, deadline)
PyObject* entry_tuple(const HeldEntries::Entry& entry) {
  const RequestHead& head = entry.head;
  PyObject* id = bytes_of(entry.id);
  PyObject* client = id != nullptr ? bytes_of({head.client.data(), head.client.size()}) : nullptr;
  if (client == nullptr) {
    Py_XDECREF(id);
    return nullptr;
  }
  return Py_BuildValue("(NNKIIL)", id, client, static_cast<unsigned long long>(head.request), head.begin, head.items,
                       static_cast<long long>(head.deadline));
}

// Results that are taken back, by what is to be done with them.
struct Results {
  std::vector<Part> parts;
  std::vector<PyObject*> bodies;  // that the parts refer to; references

  ~Results() {
    for (PyObject* body : bodies) Py_DECREF(body);
  }

  void add(HeldEntries::Entry& entry, PyObject* body, std::size_t most) {
    const std::string_view text = text_of(body);
    if (parts.empty() || (parts.back().size > 0 && parts.back().size + text.size() > most)) parts.emplace_back();
    bodies.push_back(body);
    Py_INCREF(body);
    Part& part = parts.back();
    const RequestHead& head = entry.head;
    part.replies[head.client].add({.request = head.request, .begin = head.begin, .items = head.items, .body = text});
    part.ids.push_back(std::move(entry.id));
    part.size += text.size();
  }
};

// False with an exception set.
bool look_at(HeldEntries& held, PyObject* ended, std::size_t limit, std::size_t most, Results& results,
             PyObject* others) {
  unsigned long long number = 0;
  PyObject* body = nullptr;
  if (!PyTuple_Check(ended)) {
    PyErr_Format(PyExc_TypeError, "what has ended must be a tuple, got %.200s", Py_TYPE(ended)->tp_name);
    return false;
  }
  if (!PyArg_ParseTuple(ended, "KS", &number, &body)) return false;
  std::optional<HeldEntries::Entry> entry = held.answer(number);
  if (!entry) return true;  // it is somebody else's by now, or nobody's
  const std::string_view text = text_of(body);
  if (text.empty() || text.size() > limit || ipc::says_nobody_is_there(text)) {
    PyObject* tuple = entry_tuple(*entry);
    return append(others, tuple != nullptr ? Py_BuildValue("(NO)", tuple, body) : nullptr);
  }
  return !attempt([&] { results.add(*entry, body, most); }).raise();
}

}  // namespace

PyObject* held_answer(PyObject* object, PyObject* args, PyObject* kwargs) {
  HeldObject* self = held_of(object);
  PyObject* ended;
  Py_ssize_t limit, most;
  static const char* names[] = {"ended", "limit", "most", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!nn", const_cast<char**>(names), &PyList_Type, &ended, &limit,
                                   &most)) {
    return nullptr;
  }
  if (limit < 0 || most < 0)
    return PyErr_Format(PyExc_ValueError, "limit and most must be at least 0, got %zd and %zd", limit, most);
  PyObject* others = PyList_New(0);
  auto* results = new Results;
  bool done = others != nullptr;
  for (Py_ssize_t i = 0; done && i < PyList_GET_SIZE(ended); ++i) {
    done = look_at(*self->entries, PyList_GET_ITEM(ended, i), static_cast<std::size_t>(limit),
                   static_cast<std::size_t>(most), *results, others);
  }
  PyObject* parts = done && ring(self) ? part_list(results->parts) : nullptr;
  delete results;
  PyObject* answer = parts != nullptr ? Py_BuildValue("(NO)", parts, others) : nullptr;
  Py_XDECREF(others);
  return answer;
}

}  // namespace service_streamer::bindings
