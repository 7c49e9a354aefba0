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

using Told = ipc::Told;

// How long a future asks what the engine's process knows of it: that is a matter of microseconds, or of a broken connection.
constexpr Duration kPatience = std::chrono::seconds(1);

struct RelayObject {
  PyObject_HEAD
  EngineObject* engine;
  ipc::Relay* relay;
};

RelayObject* self_of(PyObject* self) {
  return reinterpret_cast<RelayObject*>(self);
}

ipc::Relay* relay_of(PyObject* self) {
  return from_this_process(self_of(self)->engine) ? self_of(self)->relay : nullptr;
}

// Asks by `question(told, waiter)` without the GIL; as wait_without_gil(). `told` lies on the heap.
template <typename Question>
int ask(Question question) {
  Failure failure;
  const int answered = wait_without_gil([&](Waiter& waiter) {
    Completion::Wait end = Completion::Wait::kTimeout;
    failure = attempt([&] { end = question(waiter); });
    return end;
  });
  return failure.raise() ? -1 : answered;
}

template <typename Question>
int ask_about(FutureObject* future, Question question) {
  EngineObject* engine = future->engine;
  if (engine->relay == nullptr || future->call == nullptr) return 0;
  PyObject* relay = Py_NewRef(engine->relay_object);
  auto* told = new Told;
  const TimePoint deadline = Clock::now() + kPatience;
  const int answered =
      ask([&, told](Waiter& waiter) { return question(*self_of(relay)->relay, *told, waiter, deadline); });
  const int yes = answered == 1 ? static_cast<int>(told->yes) : answered;
  delete told;
  Py_DECREF(relay);
  return yes;
}

PyObject* relay_start(PyObject* self, PyObject*) {
  ipc::Relay* relay = relay_of(self);
  if (relay == nullptr || attempt([&] { relay->start(); }).raise()) return nullptr;
  Py_RETURN_NONE;
}

PyObject* relay_stop(PyObject* self, PyObject*) {
  ipc::Relay* relay = relay_of(self);
  if (relay == nullptr || attempt_without_gil([&] { relay->stop(); }).raise()) return nullptr;
  Py_RETURN_NONE;
}

PyObject* relay_stats(PyObject* self, PyObject* timeout) {
  ipc::Relay* relay = relay_of(self);
  TimePoint deadline;
  if (relay == nullptr || !deadline_from(timeout, deadline)) return nullptr;
  auto* told = new Told;
  const int answered = ask([&, told](Waiter& waiter) { return relay->stats(*told, waiter, deadline); });
  PyObject* json = nullptr;
  if (answered == 1) {
    json = PyUnicode_DecodeUTF8(told->text.data(), static_cast<Py_ssize_t>(told->text.size()), "replace");
  } else if (answered == 0) {
    json = Py_NewRef(Py_None);
  }
  delete told;
  return json;
}

PyObject* relay_configure(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::Relay* relay = relay_of(self);
  PyObject *timeout = Py_None, *batch_size = nullptr, *max_latency = nullptr, *policy = nullptr;
  static const char* names[] = {"timeout", "batch_size", "max_latency", "policy", nullptr};
  EngineChange change;
  TimePoint deadline;
  if (relay == nullptr ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO", const_cast<char**>(names), &timeout, &batch_size,
                                   &max_latency, &policy) ||
      !change_from(batch_size, max_latency, policy, change) || !deadline_from(timeout, deadline)) {
    return nullptr;
  }
  auto* told = new Told;
  const int answered = ask([&, told](Waiter& waiter) { return relay->configure(change, *told, waiter, deadline); });
  PyObject* done = nullptr;
  if (answered == 1 && !told->yes) {
    PyErr_SetString(PyExc_ValueError, told->text.c_str());
  } else if (answered >= 0) {
    done = PyBool_FromLong(answered);
  }
  delete told;
  return done;
}

PyObject* relay_wait_ready(PyObject* self, PyObject* timeout) {
  ipc::Relay* relay = relay_of(self);
  TimePoint deadline;
  if (relay == nullptr || !deadline_from(timeout, deadline)) return nullptr;
  auto* told = new Told;
  const int answered = ask([&, told](Waiter& waiter) { return relay->wait_ready(*told, waiter, deadline); });
  PyObject* ready = nullptr;
  if (answered == 1 && !told->yes) {
    raise_lost(told->text);
  } else if (answered == 0 && self_of(self)->engine->engine->closed()) {
    raise_message("StreamerClosed", "the streamer is closed");
  } else if (answered >= 0) {
    ready = PyBool_FromLong(answered);
  }
  delete told;
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
  const Failure failure =
      attempt([&] { self_of(self)->relay = new ipc::Relay(*engine->engine, address, owner_returns != 0); });
  if (failure.raise()) {
    Py_DECREF(self);
    return nullptr;
  }
  engine->relay = self_of(self)->relay;
  engine->relay_object = self;
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
  if (self->relay != nullptr && self->engine->fork_generation == fork_generation()) {
    self->engine->relay = nullptr;
    self->engine->relay_object = nullptr;
    delete self->relay;  // stops: its thread wants no GIL
  }
  Py_CLEAR(self->engine);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"start", relay_start, METH_NOARGS,
     "start($self)\n--\n\n"
     "Starts the thread that hands requests on."},
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

PyType_Spec spec = {"service_streamer._core.Relay", sizeof(RelayObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                    slots};

}  // namespace

int ask_cancel(FutureObject* future) {
  return ask_about(future, [future](ipc::Relay& relay, Told& told, Waiter& waiter, TimePoint deadline) {
    return relay.cancel(*future->request, told, waiter, deadline);
  });
}

int ask_running(FutureObject* future) {
  return ask_about(future, [future](ipc::Relay& relay, Told& told, Waiter& waiter, TimePoint deadline) {
    return relay.running(*future->request, told, waiter, deadline);
  });
}

bool make_relay_type(PyObject* module) {
  return add_type(module, spec);
}

}  // namespace service_streamer::bindings
