#include "bindings/broker/broker_messages.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/broker/broker_bodies.h"
#include "bindings/python/errors.h"
#include "bindings/python/methods.h"
#include "service_streamer/wire/broker_entries.h"

// The messages that a client of a broker sends and gets, many in one call.

namespace service_streamer::bindings {
namespace {

using ipc::BrokerAnswer;
using ipc::RequestHead;

// --- requests ---

// The arguments for all requests of a call.
struct Sending {
  std::string_view append;  // the command, up to its last argument
  RequestHead head;         // client and time
  double ahead;             // ms, of the broker's clock
  std::size_t limit;        // bytes of a message
  PyObject* seal;           // function that signs a message, or None
};

// "…$size\r\nmessage\r\n" as bytes; `write(char*)` writes the message. nullptr with an exception set.
template <typename Write>
PyObject* command_of(std::string_view append, std::size_t size, Write write) {
  const std::string count = "$" + std::to_string(size) + "\r\n";
  return make_body(append.size() + count.size() + size + 2, [&](char* to) {
    to = std::copy(append.begin(), append.end(), to);
    to = std::copy(count.begin(), count.end(), to);
    write(to);
    to[size] = '\r';
    to[size + 1] = '\n';
  });
}

// Reads a chunk (id, begin, items, deadline, priority, body). False with an exception set.
bool head_from(PyObject* chunk, const Sending& sending, RequestHead& head, PyObject*& body) {
  PyObject* deadline = nullptr;
  unsigned long long request = 0;
  unsigned int begin = 0;
  unsigned int items = 0;
  int priority = 0;
  if (!PyTuple_Check(chunk)) {
    PyErr_Format(PyExc_TypeError, "a chunk must be a tuple, got %.200s", Py_TYPE(chunk)->tp_name);
    return false;
  }
  if (!PyArg_ParseTuple(chunk, "KIIOiS", &request, &begin, &items, &deadline, &priority, &body)) return false;
  head = sending.head;
  head.request = request;
  head.begin = begin;
  head.items = items;
  head.priority = priority;
  if (deadline == Py_None) return true;
  const double seconds = PyFloat_AsDouble(deadline);
  if (seconds == -1.0 && PyErr_Occurred() != nullptr) return false;
  head.deadline = std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1000 + sending.ahead));
  return true;
}

// The command that sends a request, and the size of its message. nullptr: the message is too large, or an exception is
// set.
PyObject* command_from(const Sending& sending, const RequestHead& head, PyObject* body, std::size_t& size) {
  const auto write = [&](char* to) {
    ipc::wire::append(to, head);
    ipc::wire::append_text(to, text_of(body));
  };
  size = sizeof(RequestHead) + text_of(body).size();
  if (sending.seal == Py_None) return size <= sending.limit ? command_of(sending.append, size, write) : nullptr;
  PyObject* message = make_body(size, write);
  PyObject* sealed = message != nullptr ? PyObject_CallOneArg(sending.seal, message) : nullptr;
  Py_XDECREF(message);
  if (sealed == nullptr) return nullptr;
  PyObject* command = nullptr;
  if (!PyBytes_Check(sealed)) {
    PyErr_Format(PyExc_TypeError, "a sealed message must be bytes, got %.200s", Py_TYPE(sealed)->tp_name);
  } else {
    size = static_cast<std::size_t>(PyBytes_GET_SIZE(sealed));
    const char* from = PyBytes_AS_STRING(sealed);
    if (size <= sending.limit)
      command = command_of(sending.append, size, [&](char* to) { std::copy_n(from, size, to); });
  }
  Py_DECREF(sealed);
  return command;
}

// Adds the command of a chunk under (id, begin), or (id, items, size) to `too_large`. False with an exception set.
bool pack(const Sending& sending, PyObject* chunk, PyObject* commands, PyObject* too_large) {
  RequestHead head;
  PyObject* body = nullptr;
  std::size_t size = 0;
  if (!head_from(chunk, sending, head, body)) return false;
  const auto id = static_cast<unsigned long long>(head.request);
  PyObject* command = command_from(sending, head, body, size);
  if (command == nullptr && PyErr_Occurred() != nullptr) return false;
  PyObject* key = command != nullptr ? Py_BuildValue("(KI)", id, head.begin)
                                     : Py_BuildValue("(KIn)", id, head.items, static_cast<Py_ssize_t>(size));
  bool packed = key != nullptr;
  if (packed)
    packed = (command != nullptr ? PyDict_SetItem(commands, key, command) : PyList_Append(too_large, key)) == 0;
  Py_XDECREF(key);
  Py_XDECREF(command);
  return packed;
}

PyObject* pack_requests(PyObject*, PyObject* args, PyObject* kwargs) {
  PyObject *chunks, *append, *client;
  Py_ssize_t limit;
  long long now;
  Sending sending{};
  static const char* names[] = {"chunks", "append", "client", "now", "ahead", "limit", "seal", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!SSLdnO", const_cast<char**>(names), &PyList_Type, &chunks, &append,
                                   &client, &now, &sending.ahead, &limit, &sending.seal)) {
    return nullptr;
  }
  if (PyBytes_GET_SIZE(client) != static_cast<Py_ssize_t>(sending.head.client.size()) || limit < 0) {
    return PyErr_Format(PyExc_ValueError, "a client of 16 bytes and a limit of at least 0 are wanted, got %R and %zd",
                        client, limit);
  }
  std::copy_n(PyBytes_AS_STRING(client), sending.head.client.size(), sending.head.client.data());
  sending.append = text_of(append);
  sending.head.sent = now;
  sending.limit = static_cast<std::size_t>(limit);
  PyObject* commands = PyDict_New();
  PyObject* too_large = commands != nullptr ? PyList_New(0) : nullptr;
  bool packed = too_large != nullptr;
  for (Py_ssize_t i = 0; packed && i < PyList_GET_SIZE(chunks); ++i) {
    packed = pack(sending, PyList_GET_ITEM(chunks, i), commands, too_large);
  }
  PyObject* both = packed ? Py_BuildValue("(OO)", commands, too_large) : nullptr;
  Py_XDECREF(commands);
  Py_XDECREF(too_large);
  return both;
}

bool check_message(PyObject* message) {
  if (PyBytes_Check(message)) return true;
  PyErr_Format(PyExc_TypeError, "a message must be bytes, got %.200s", Py_TYPE(message)->tp_name);
  return false;
}

PyObject* read_request(PyObject*, PyObject* message) {
  RequestHead head;
  if (!check_message(message)) return nullptr;
  const std::string_view text = text_of(message);
  if (!ipc::parse_request_head(text, head)) Py_RETURN_NONE;
  return Py_BuildValue("(NKIILLiN)", bytes_of({head.client.data(), head.client.size()}),
                       static_cast<unsigned long long>(head.request), head.begin, head.items,
                       static_cast<long long>(head.deadline), static_cast<long long>(head.sent), head.priority,
                       bytes_of(text.substr(sizeof head)));
}

// --- replies ---

PyObject* answer_list(const std::vector<BrokerAnswer>& answers) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(answers.size()));
  for (std::size_t i = 0; list != nullptr && i < answers.size(); ++i) {
    const BrokerAnswer& answer = answers[i];
    PyObject* tuple = Py_BuildValue("(KIIN)", static_cast<unsigned long long>(answer.request), answer.begin,
                                    answer.items, bytes_of(answer.body));
    if (tuple == nullptr) {
      Py_CLEAR(list);
    } else {
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), tuple);
    }
  }
  return list;
}

PyObject* read_replies(PyObject*, PyObject* message) {
  if (!check_message(message)) return nullptr;
  std::vector<BrokerAnswer> answers;
  bool sound = false;
  const CaughtError failure = attempt([&] { sound = ipc::ClientReply::parse(text_of(message), answers); });
  if (failure.raise()) return nullptr;
  return sound ? answer_list(answers) : Py_NewRef(Py_None);
}

PyMethodDef functions[] = {
    {"pack_requests", as_method(pack_requests), METH_VARARGS | METH_KEYWORDS,
     "pack_requests(chunks, append, client, now, ahead, limit, seal)\n--\n\n"
     "Makes a command of each chunk of BrokerEgress.take(): ({(id, begin): command}, [(id, items, size)] of those "
     "whose "
     "message "
     "has more than `limit` bytes).\n\n"
     "`append` is a command of Redis up to its last argument, the message of the request; `seal(message)` signs it, or "
     "is "
     "None. `now` is in ms on the broker's clock, which is `ahead` of time.monotonic()."},
    {"read_request", read_request, METH_O,
     "read_request(message, /)\n--\n\n"
     "(client, request, begin, items, deadline, sent, priority, body); None: it is no sound request of this version."},
    {"read_replies", read_replies, METH_O,
     "read_replies(message, /)\n--\n\n"
     "The answers of a reply: [(id, begin, items, body)]; None: it is no sound reply of this version."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool make_broker_functions(PyObject* module) {
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace service_streamer::bindings
