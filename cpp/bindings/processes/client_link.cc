#include "bindings/processes/client_link.h"

#include <string>
#include <utility>

#include "bindings/engine/engine.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/methods.h"
#include "bindings/python/waiting.h"
#include "service_streamer/client/client_link.h"

namespace service_streamer::bindings {
namespace {

using QueryReply = ipc::QueryReply;

// How long a future asks what the engine's process knows of it: that is a matter of microseconds, or of a broken connection.
constexpr Duration kPatience = std::chrono::seconds(1);

struct RelayObject {
  PyObject_HEAD
  EngineObject* engine;
  ipc::ClientLink* client_link;
};

RelayObject* self_of(PyObject* self) {
  return reinterpret_cast<RelayObject*>(self);
}

ipc::ClientLink* relay_of(PyObject* self) {
  return from_this_process(self_of(self)->engine) ? self_of(self)->client_link : nullptr;
}

// Asks by `question(told, waiter)` without the GIL; as wait_without_gil(). `told` lies on the heap.
template <typename QueryKind>
int query(QueryKind question) {
  CaughtError failure;
  const int answered = wait_without_gil([&](Waiter& waiter) {
    Completion::Wait end = Completion::Wait::kTimeout;
    failure = attempt([&] { end = question(waiter); });
    return end;
  });
  return failure.raise() ? -1 : answered;
}

template <typename QueryKind>
int ask_about(FutureObject* future, QueryKind question) {
  EngineObject* engine = future->engine;
  if (engine->client_link == nullptr || future->call == nullptr) return 0;
  PyObject* client_link = Py_NewRef(engine->client_link_object);
  auto* reply = new QueryReply;
  const TimePoint deadline = Clock::now() + kPatience;
  const int answered = query(
      [&, reply](Waiter& waiter) { return question(*self_of(client_link)->client_link, *reply, waiter, deadline); });
  const int yes = answered == 1 ? static_cast<int>(reply->yes) : answered;
  delete reply;
  Py_DECREF(client_link);
  return yes;
}

PyObject* relay_start(PyObject* self, PyObject*) {
  ipc::ClientLink* client_link = relay_of(self);
  if (client_link == nullptr || attempt([&] { client_link->start(true); }).raise()) return nullptr;
  Py_RETURN_NONE;
}

PyObject* client_link_connect_error(PyObject* self, PyObject*) {
  ipc::ClientLink* client_link = relay_of(self);
  if (client_link == nullptr) return nullptr;
  const std::string words = client_link->connect_error();
  return PyUnicode_DecodeUTF8(words.data(), static_cast<Py_ssize_t>(words.size()), "replace");
}

PyObject* relay_stop(PyObject* self, PyObject*) {
  ipc::ClientLink* client_link = relay_of(self);
  if (client_link == nullptr || attempt_without_gil([&] { client_link->stop(); }).raise()) return nullptr;
  Py_RETURN_NONE;
}

PyObject* relay_stats(PyObject* self, PyObject* timeout) {
  ipc::ClientLink* client_link = relay_of(self);
  TimePoint deadline;
  if (client_link == nullptr || !deadline_from(timeout, deadline)) return nullptr;
  auto* reply = new QueryReply;
  const int answered = query([&, reply](Waiter& waiter) { return client_link->stats(*reply, waiter, deadline); });
  PyObject* json = nullptr;
  if (answered == 1) {
    json = PyUnicode_DecodeUTF8(reply->text.data(), static_cast<Py_ssize_t>(reply->text.size()), "replace");
  } else if (answered == 0) {
    json = Py_NewRef(Py_None);
  }
  delete reply;
  return json;
}

PyObject* relay_configure(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::ClientLink* client_link = relay_of(self);
  PyObject *timeout = Py_None, *batch_size = nullptr, *max_latency = nullptr, *policy = nullptr;
  static const char* names[] = {"timeout", "batch_size", "max_latency", "policy", nullptr};
  EngineChange change;
  TimePoint deadline;
  if (client_link == nullptr ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO", const_cast<char**>(names), &timeout, &batch_size,
                                   &max_latency, &policy) ||
      !change_from(batch_size, max_latency, policy, change) || !deadline_from(timeout, deadline)) {
    return nullptr;
  }
  auto* reply = new QueryReply;
  const int answered =
      query([&, reply](Waiter& waiter) { return client_link->configure(change, *reply, waiter, deadline); });
  PyObject* done = nullptr;
  if (answered == 1 && !reply->yes) {
    PyErr_SetString(PyExc_ValueError, reply->text.c_str());
  } else if (answered >= 0) {
    done = PyBool_FromLong(answered);
  }
  delete reply;
  return done;
}

PyObject* relay_wait_ready(PyObject* self, PyObject* timeout) {
  ipc::ClientLink* client_link = relay_of(self);
  TimePoint deadline;
  if (client_link == nullptr || !deadline_from(timeout, deadline)) return nullptr;
  auto* reply = new QueryReply;
  const int answered = query([&, reply](Waiter& waiter) { return client_link->wait_ready(*reply, waiter, deadline); });
  PyObject* ready = nullptr;
  if (answered == 1 && !reply->yes) {
    raise_lost(reply->text);
  } else if (answered == 0 && self_of(self)->engine->engine->closed()) {
    raise_message("StreamerClosed", "the streamer is closed");
  } else if (answered >= 0) {
    ready = PyBool_FromLong(answered);
  }
  delete reply;
  return ready;
}

PyObject* relay_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  EngineObject* engine;
  const char* address;
  int owner_returns = 1;
  static const char* names[] = {"engine", "address", "owner_returns", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!s|p", const_cast<char**>(names), engine_type, &engine, &address,
                                   &owner_returns)) {
    return nullptr;
  }
  if (!from_this_process(engine) || !check_remote(engine)) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  self_of(self)->engine = reinterpret_cast<EngineObject*>(Py_NewRef(reinterpret_cast<PyObject*>(engine)));
  const CaughtError failure =
      attempt([&] { self_of(self)->client_link = new ipc::ClientLink(*engine->engine, address, owner_returns != 0); });
  if (failure.raise()) {
    Py_DECREF(self);
    return nullptr;
  }
  engine->client_link = self_of(self)->client_link;
  engine->client_link_object = self;
  return self;
}

int relay_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<PyObject*>(self_of(self)->engine));
  return 0;
}

void relay_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  RelayObject* self = self_of(object);
  if (self->client_link != nullptr && self->engine->fork_generation == fork_generation()) {
    self->engine->client_link = nullptr;
    self->engine->client_link_object = nullptr;
    delete self->client_link;  // stops: its thread wants no GIL
  }
  Py_CLEAR(self->engine);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"start", relay_start, METH_NOARGS,
     "start($self)\n--\n\n"
     "Connects if that is possible at once, and starts the thread that hands requests on."},
    {"connect_error", client_link_connect_error, METH_NOARGS,
     "connect_error($self)\n--\n\n"
     "Why there was no engine's process at the address at the last attempt to connect, in words; '': there was one."},
    {"stop", relay_stop, METH_NOARGS,
     "stop($self)\n--\n\n"
     "Blocks until that thread has ended and the connection is closed. Idempotent."},
    {"stats", relay_stats, METH_O,
     "stats($self, timeout, /)\n--\n\n"
     "What Server.stats() says there; None: not within the time."},
    {"configure", as_method(relay_configure), METH_VARARGS | METH_KEYWORDS,
     "configure($self, *, timeout=None, batch_size=None, max_latency=None, policy=None)\n--\n\n"
     "Changes the settings there that are not None; False: not within the time."},
    {"wait_ready", relay_wait_ready, METH_O,
     "wait_ready($self, timeout, /)\n--\n\n"
     "Blocks until a worker can answer; False: not within the time. Raises WorkerInitError or WorkerLost when none "
     "will."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Hands the requests of an engine on to the process of another one.")},
    {Py_tp_new, reinterpret_cast<void*>(relay_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(relay_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(relay_traverse)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.ClientLink", sizeof(RelayObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

int query_cancel(FutureObject* future) {
  return ask_about(future,
                   [future](ipc::ClientLink& client_link, QueryReply& reply, Waiter& waiter, TimePoint deadline) {
                     return client_link.cancel(*future->request, reply, waiter, deadline);
                   });
}

int query_running(FutureObject* future) {
  return ask_about(future,
                   [future](ipc::ClientLink& client_link, QueryReply& reply, Waiter& waiter, TimePoint deadline) {
                     return client_link.running(*future->request, reply, waiter, deadline);
                   });
}

PyObject* absence_of(const EngineObject* engine) {
  const bool ours = engine->client_link != nullptr && engine->fork_generation == fork_generation();
  PyObject* words = ours ? client_link_connect_error(engine->client_link_object, nullptr) : PyUnicode_FromString("");
  if (words == nullptr || PyUnicode_GET_LENGTH(words) == 0) return words;
  PyObject* text = PyUnicode_FromFormat(": %U", words);
  Py_DECREF(words);
  return text;
}

bool make_client_link_type(PyObject* module) {
  return add_type(module, spec);
}

}  // namespace service_streamer::bindings
