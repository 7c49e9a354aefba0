#include <map>
#include <optional>
#include <utility>

#include "bindings/broker/broker_bodies.h"
#include "bindings/broker/leases.h"
#include "bindings/python/errors.h"
#include "service_streamer/wire/broker_body.h"

// Leases.answer(): results for the broker.

namespace service_streamer::bindings {
namespace {

using ipc::LeasedEntries;
using ipc::RequestHead;

// Replies that are sent to the broker together. Keeps references to their bodies.
struct Part {
  std::map<ipc::ClientId, ipc::ClientReply> replies;
  std::vector<std::string> ids;
  std::vector<PyObject*> bodies;
  std::size_t size = 0;  // bytes of all bodies

  ~Part() {
    for (PyObject* body : bodies) Py_DECREF(body);
  }

  void add(LeasedEntries::Entry& entry, PyObject* body) {
    const RequestHead& head = entry.head;
    bodies.push_back(body);
    Py_INCREF(body);
    replies[head.client].add(
        {.request = head.request, .begin = head.begin, .items = head.items, .body = text_of(body)});
    ids.push_back(std::move(entry.id));
    size += size_of(body);
  }

  static std::size_t size_of(PyObject* body) { return ipc::ClientReply::kAnswerHead + text_of(body).size(); }
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

// (id, client, request, begin, items, deadline)
PyObject* entry_tuple(const LeasedEntries::Entry& entry) {
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

// Limits of one call.
struct Limits {
  Py_ssize_t body;  // bytes of one body
  Py_ssize_t part;  // bytes of all bodies, about
};

// Takes one result; `full`: it is left to the next call. False with an exception set.
bool take(LeasesObject* self, PyObject* ended, const Limits& limits, Part& part, PyObject* others, bool& full) {
  unsigned long long number = 0;
  PyObject* body = nullptr;
  if (!PyTuple_Check(ended)) {
    PyErr_Format(PyExc_TypeError, "what has ended must be a tuple, got %.200s", Py_TYPE(ended)->tp_name);
    return false;
  }
  if (!PyArg_ParseTuple(ended, "KS", &number, &body)) return false;
  full = !part.ids.empty() && part.size + Part::size_of(body) > static_cast<std::size_t>(limits.part);
  if (full) return true;
  std::optional<LeasedEntries::Entry> entry = locked(self, [&] { return self->entries->answer(number); });
  if (!entry) return true;  // the entry was removed: another process has it, or it has ended
  const std::string_view text = text_of(body);
  if (text.empty() || text.size() > static_cast<std::size_t>(limits.body) || ipc::reports_no_worker(text)) {
    PyObject* tuple = entry_tuple(*entry);
    return append(others, tuple != nullptr ? Py_BuildValue("(NO)", tuple, body) : nullptr);
  }
  return !attempt([&] { part.add(*entry, body); }).raise();
}

}  // namespace

PyObject* leases_answer(PyObject* object, PyObject* args, PyObject* kwargs) {
  LeasesObject* self = leases_of(object);
  PyObject* ended;
  Limits limits{};
  static const char* names[] = {"ended", "limit", "most", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!nn", const_cast<char**>(names), &PyList_Type, &ended, &limits.body,
                                   &limits.part)) {
    return nullptr;
  }
  if (limits.body < 0 || limits.part < 0) {
    return PyErr_Format(PyExc_ValueError, "limit and most must be at least 0, got %zd and %zd", limits.body,
                        limits.part);
  }
  PyObject* others = PyList_New(0);
  auto* part = new Part;
  bool taken = others != nullptr;
  bool full = false;
  Py_ssize_t count = 0;
  while (taken && count < PyList_GET_SIZE(ended)) {
    taken = take(self, PyList_GET_ITEM(ended, count), limits, *part, others, full);
    if (full) break;
    ++count;
  }
  PyObject* messages = taken && ring(self) ? message_list(*part) : nullptr;
  PyObject* ids = messages != nullptr ? bytes_list(part->ids) : nullptr;
  delete part;
  PyObject* answer = ids != nullptr ? Py_BuildValue("(OOOn)", messages, ids, others, count) : nullptr;
  Py_XDECREF(messages);
  Py_XDECREF(ids);
  Py_XDECREF(others);
  return answer;
}

}  // namespace service_streamer::bindings
