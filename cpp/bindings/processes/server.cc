#include "bindings/processes/server.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "bindings/futures/future.h"
#include "bindings/processes/attached_backend.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/methods.h"
#include "bindings/python/waiting.h"

namespace service_streamer::bindings {

PyTypeObject* server_type = nullptr;

int ServerBackend::wait(FutureObject* future, TimePoint deadline, const WorkerWake& worker) {
  if (worker.waiter == nullptr) return ProcessBackend::wait(future, deadline, worker);
  PyObject* kept = kHasGil ? Py_NewRef(object_) : nullptr;
  WorkerWake once = worker;
  const int done = wait_without_gil(
      [&](Waiter& waiter) { return server.wait(std::exchange(once, {}), *future->request, waiter, deadline); });
  Py_XDECREF(kept);
  return done;
}

namespace {

using Event = ipc::Server::Event;

ServerObject* self_of(PyObject* self) {
  return reinterpret_cast<ServerObject*>(self);
}

// The server of a method's object; nullptr with StreamerClosed raised in a forked child.
ipc::Server* server_of(PyObject* self) {
  return from_this_process(self_of(self)->engine) ? &self_of(self)->backend->server : nullptr;
}

PyObject* text_or_raise(const CaughtError& failure, const std::string& text) {
  if (failure.raise()) return nullptr;
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

PyObject* server_start(PyObject* self, PyObject*) {
  ipc::Server* server = server_of(self);
  return server != nullptr ? none_or_raise(attempt([&] { server->start(); })) : nullptr;
}

PyObject* server_stop(PyObject* self, PyObject*) {
  ipc::Server* server = server_of(self);
  return server != nullptr ? none_or_raise(attempt_without_gil([&] { server->stop(); })) : nullptr;
}

PyObject* server_configure(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::Server* server = server_of(self);
  GivenSettings given;
  static const char* names[] = {"batch_size", "max_latency", "policy", "slo", nullptr};
  EngineChange change;
  if (server == nullptr ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO", const_cast<char**>(names), &given.batch_size,
                                   &given.max_latency, &given.policy, &given.slo) ||
      !change_from(given, change)) {
    return nullptr;
  }
  return none_or_raise(attempt([&] { server->configure(change); }));
}

PyObject* server_set_workers(PyObject* self, PyObject* number) {
  ipc::Server* server = server_of(self);
  int workers;
  if (server == nullptr || !PyArg_Parse(number, "i", &workers)) return nullptr;
  return none_or_raise(attempt([&] { server->set_workers(workers); }));
}

PyObject* server_add_worker(PyObject* self, PyObject* args) {
  ipc::Server* server = server_of(self);
  int socket;
  int pid;
  PyObject* setup;
  unsigned int place = 0;
  if (server == nullptr || !PyArg_ParseTuple(args, "iiS|I", &socket, &pid, &setup, &place)) return nullptr;
  std::uint32_t id = 0;
  const CaughtError failure = attempt([&] {
    FileDescriptor descriptor(socket);
    std::string text(PyBytes_AS_STRING(setup), static_cast<std::size_t>(PyBytes_GET_SIZE(setup)));
    id = server->add_worker(std::move(descriptor), pid, std::move(text), place);
  });
  return failure.raise() ? nullptr : PyLong_FromUnsignedLong(id);
}

PyObject* server_retire_worker(PyObject* self, PyObject* worker) {
  ipc::Server* server = server_of(self);
  if (server == nullptr) return nullptr;
  const unsigned long id = PyLong_AsUnsignedLong(worker);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return none_or_raise(attempt([&] { server->retire_worker(static_cast<std::uint32_t>(id)); }));
}

const char* to_string(Event::Kind kind) {
  switch (kind) {
    case Event::Kind::kReady:
      return "ready";
    case Event::Kind::kInitFailed:
      return "init_failed";
    case Event::Kind::kRetired:
      return "retired";
    case Event::Kind::kClientConnected:
      return "client_connected";
    case Event::Kind::kClientGone:
      return "client_gone";
    case Event::Kind::kGone:
      break;
  }
  return "gone";
}

PyObject* server_next_event(PyObject* self, PyObject* timeout) {
  ipc::Server* server = server_of(self);
  TimePoint deadline;
  if (server == nullptr || !deadline_from(timeout, deadline)) return nullptr;
  Waiter& waiter = WaiterPool::acquire();
  auto* event = new std::optional<Event>;  // on the heap: this thread may end in the wait
  const CaughtError failure = attempt_without_gil([&] { *event = server->next_event(waiter, deadline); });
  WaiterPool::release(waiter);
  PyObject* tuple = nullptr;
  if (failure.raise() || (!event->has_value() && PyErr_CheckSignals() < 0)) {
    tuple = nullptr;
  } else if (!event->has_value()) {
    tuple = Py_NewRef(Py_None);
  } else {
    const Event& happened = **event;
    PyObject* text = text_or_raise({}, happened.text);
    if (text != nullptr) {
      tuple = Py_BuildValue("(sINNN)", to_string(happened.kind), static_cast<unsigned>(happened.worker), text,
                            PyBool_FromLong(happened.had_batch), PyBool_FromLong(happened.killed_hung));
    }
  }
  delete event;
  return tuple;
}

PyObject* server_interrupt(PyObject* self, PyObject*) {
  ipc::Server* server = server_of(self);
  return server != nullptr ? none_or_raise(attempt([&] { server->interrupt(); })) : nullptr;
}

PyObject* server_set_failure(PyObject* self, PyObject* note) {
  ipc::Server* server = server_of(self);
  if (server == nullptr) return nullptr;
  Py_ssize_t size = 0;
  const char* text = note != Py_None ? PyUnicode_AsUTF8AndSize(note, &size) : nullptr;
  if (PyErr_Occurred() != nullptr) return nullptr;
  return none_or_raise(attempt([&] {
    std::optional<std::string> given;
    if (text != nullptr) given.emplace(text, static_cast<std::size_t>(size));
    server->set_failure(std::move(given));
  }));
}

PyObject* server_stats(PyObject* self, PyObject*) {
  ipc::Server* server = server_of(self);
  if (server == nullptr) return nullptr;
  std::string json;
  const CaughtError failure = attempt([&] { json = server->stats(); });
  return text_or_raise(failure, json);
}

PyObject* server_address(PyObject* self, void*) {
  return text_or_raise({}, self_of(self)->backend->server.address());
}

bool read_options(PyObject* hang_timeout, const char* address, ipc::ServerOptions& options) {
  if (hang_timeout != Py_None) {
    const double seconds = PyFloat_AsDouble(hang_timeout);
    if (PyErr_Occurred() != nullptr) return false;
    options.hang_timeout = duration_from(seconds);
  }
  return !attempt([&] { options.address = address != nullptr ? address : ""; }).raise();
}

PyObject* server_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  EngineObject* engine;
  int retries;
  PyObject* hang_timeout;
  const char* address;
  int places = 0;
  static const char* names[] = {"engine", "retries", "hang_timeout", "address", "places", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!iOz|i", const_cast<char**>(names), engine_type, &engine, &retries,
                                   &hang_timeout, &address, &places)) {
    return nullptr;
  }
  const ProcessBackend* own = from_this_process(engine) ? unattached_backend(engine) : nullptr;
  if (own == nullptr) return nullptr;
  ipc::ServerOptions options;
  options.retries = retries;
  options.places = static_cast<std::size_t>(std::max(places, 0));
  if (!read_options(hang_timeout, address, options)) return nullptr;
  return attached_new<ServerObject>(type, engine, [&](ServerObject& self) {
    auto* object = reinterpret_cast<PyObject*>(&self);
    // Without the GIL: the server may wait for the lock of a folder.
    return attempt_without_gil(
        [&] { self.backend = new ServerBackend(object, *engine->engine, options, own->inline_items()); });
  });
}

PyMethodDef methods[] = {
    {"start", server_start, METH_NOARGS,
     "start($self)\n--\n\n"
     "Starts the thread that serves workers and clients."},
    {"stop", server_stop, METH_NOARGS,
     "stop($self)\n--\n\n"
     "Blocks until that thread has ended and every socket is closed. Idempotent."},
    {"configure", as_method(server_configure), METH_VARARGS | METH_KEYWORDS,
     "configure($self, *, batch_size=None, max_latency=None, policy=None, slo=None)\n--\n\n"
     "As Engine.configure(); with places, `batch_size` is their number, and the others have no effect."},
    {"set_workers", server_set_workers, METH_O,
     "set_workers($self, number, /)\n--\n\n"
     "Changes the number of worker processes that the engine counts on."},
    {"add_worker", server_add_worker, METH_VARARGS,
     "add_worker($self, socket, pid, setup, place=0, /)\n--\n\n"
     "Takes over the socket of a worker process and sends `setup` to it; returns the number of the worker. `place`: "
     "the same for a worker that replaces another one."},
    {"retire_worker", server_retire_worker, METH_O,
     "retire_worker($self, worker, /)\n--\n\n"
     "Sends it no more batches; an event confirms that. Its connection is closed once it has answered what it has."},
    {"next_event", server_next_event, METH_O,
     "next_event($self, timeout, /)\n--\n\n"
     "Blocks until the state of a worker changes: (\"ready\" | \"init_failed\" | \"retired\" | \"gone\", worker, text, "
     "had_batch, killed_hung); or a client process connects or goes: (\"client_connected\" | \"client_gone\", 0, pid, "
     "False, False).\nNone: interrupted, or the time is over."},
    {"interrupt", server_interrupt, METH_NOARGS,
     "interrupt($self)\n--\n\n"
     "Ends next_event()."},
    {"set_failure", server_set_failure, METH_O,
     "set_failure($self, note, /)\n--\n\n"
     "Ends every request as lost, also later ones, until called with None."},
    {"stats", server_stats, METH_NOARGS,
     "stats($self)\n--\n\n"
     "Statistics of the engine and its workers, as JSON."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef attributes[] = {
    {"address", server_address, nullptr, "Where other processes connect.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Serves an engine's worker processes and client processes. Raises OSError.")},
    {Py_tp_new, reinterpret_cast<void*>(server_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(attached_dealloc<ServerObject>)},
    {Py_tp_traverse, reinterpret_cast<void*>(attached_traverse<ServerObject>)},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.Server", sizeof(ServerObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                    slots};

}  // namespace

bool make_server_type(PyObject* module) {
  server_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return server_type != nullptr && PyModule_AddType(module, server_type) == 0;
}

}  // namespace service_streamer::bindings
