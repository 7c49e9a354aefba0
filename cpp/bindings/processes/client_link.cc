#include "bindings/processes/client_link.h"

#include <cmath>
#include <string>
#include <utility>

#include "bindings/futures/future.h"
#include "bindings/processes/attached_backend.h"
#include "bindings/processes/process_backend.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/methods.h"
#include "bindings/python/waiting.h"
#include "service_streamer/client/client_link.h"

namespace service_streamer::bindings {
namespace {

using QueryReply = ipc::QueryReply;

// How long a future waits for what the engine's process knows of its request. Unless the connection is broken, that is
// soon there.
constexpr Duration kPatience = std::chrono::seconds(1);

// Asks by `question(waiter)` without the GIL; returns as wait_without_gil() does. The reply must lie on the heap.
template <typename Question>
int query(Question question) {
  CaughtError failure;
  const int answered = wait_without_gil([&](Waiter& waiter) {
    Completion::Wait end = Completion::Wait::kTimeout;
    failure = attempt([&] { end = question(waiter); });
    return end;
  });
  return failure.raise() ? -1 : answered;
}

// The back end of an engine whose requests go on to the engine of another process.
class ClientLinkBackend final : public ProcessBackend {
 public:
  ClientLinkBackend(PyObject* object, EngineObject* engine, const char* address, const ipc::ClientLinkOptions& options)
      : ProcessBackend(static_cast<const ProcessBackend*>(engine->own_backend)->inline_items()),
        link(*engine->engine, address, options),
        owner_returns_(options.owner_returns),
        object_(object),
        engine_(engine) {}

  int query_running(FutureObject* future) override {
    return is_running(future) ? ask(future, &ipc::ClientLink::running) : 0;
  }

  bool cancel(FutureObject* future) override {
    end_future(future, Outcome::kCancelled, false);
    return is_done(future) || ask(future, &ipc::ClientLink::cancel) >= 0;
  }

  PyObject* obstacle(const FutureObject*) const override {
    if (engine_->fork_generation != fork_generation()) return PyUnicode_FromString("");
    const std::string reason = link.connect_error();
    return PyUnicode_FromFormat("%s%s", reason.empty() ? "" : ": ", reason.c_str());
  }

  PyObject* close_reason() const override { return owner_returns_ ? PyUnicode_FromString("") : obstacle(nullptr); }

  bool watches_deadlines() const override { return true; }
  void retire() override { link.stop(); }

  ipc::ClientLink link;

 private:
  // 1: yes; 0: no, or no reply; -1: an exception.
  template <typename Question>
  int ask(FutureObject* future, Question question) {
    PyObject* kept = kHasGil ? Py_NewRef(object_) : nullptr;  // it owns this object
    auto* reply = new QueryReply;
    const TimePoint deadline = Clock::now() + kPatience;
    const int answered =
        query([&, reply](Waiter& waiter) { return (link.*question)(*future->request, *reply, waiter, deadline); });
    const int yes = answered == 1 ? static_cast<int>(reply->yes) : answered;
    delete reply;
    Py_XDECREF(kept);
    return yes;
  }

  const bool owner_returns_;
  PyObject* const object_;  // borrowed
  EngineObject* const engine_;
};

struct ClientLinkObject {
  PyObject_HEAD
  EngineObject* engine;
  ClientLinkBackend* backend;
};

ClientLinkObject* self_of(PyObject* self) {
  return reinterpret_cast<ClientLinkObject*>(self);
}

// The link of a method's object; nullptr with StreamerClosed raised in a forked child.
ipc::ClientLink* link_of(PyObject* self) {
  return from_this_process(self_of(self)->engine) ? &self_of(self)->backend->link : nullptr;
}

// The text that answers a question, as an object; None: there was no answer in time.
template <typename Question, typename MakeObject>
PyObject* ask_for_text(PyObject* self, PyObject* timeout, Question question, MakeObject make_object) {
  ipc::ClientLink* link = link_of(self);
  TimePoint deadline;
  if (link == nullptr || !deadline_from(timeout, deadline)) return nullptr;
  auto* reply = new QueryReply;
  const int answered = query([&, reply](Waiter& waiter) { return (link->*question)(*reply, waiter, deadline); });
  PyObject* object = nullptr;
  if (answered == 1) {
    object = make_object(reply->text.data(), static_cast<Py_ssize_t>(reply->text.size()));
  } else if (answered == 0) {
    object = Py_NewRef(Py_None);
  }
  delete reply;
  return object;
}

PyObject* client_link_start(PyObject* self, PyObject*) {
  ipc::ClientLink* link = link_of(self);
  if (link == nullptr || attempt([&] { link->start(true); }).raise()) return nullptr;
  Py_RETURN_NONE;
}

PyObject* client_link_connect_error(PyObject* self, PyObject*) {
  ipc::ClientLink* link = link_of(self);
  if (link == nullptr) return nullptr;
  const std::string words = link->connect_error();
  return PyUnicode_DecodeUTF8(words.data(), static_cast<Py_ssize_t>(words.size()), "replace");
}

PyObject* client_link_stop(PyObject* self, PyObject*) {
  ipc::ClientLink* link = link_of(self);
  if (link == nullptr || attempt_without_gil([&] { link->stop(); }).raise()) return nullptr;
  Py_RETURN_NONE;
}

PyObject* client_link_stats(PyObject* self, PyObject* timeout) {
  return ask_for_text(self, timeout, &ipc::ClientLink::stats,
                      [](const char* text, Py_ssize_t size) { return PyUnicode_DecodeUTF8(text, size, "replace"); });
}

PyObject* client_link_start_recording(PyObject* self, PyObject* args) {
  ipc::ClientLink* link = link_of(self);
  double seconds = 0;
  Py_ssize_t max_events = 0;
  PyObject* timeout = nullptr;
  TimePoint deadline;
  if (link == nullptr || !PyArg_ParseTuple(args, "dnO", &seconds, &max_events, &timeout) ||
      !deadline_from(timeout, deadline)) {
    return nullptr;
  }
  const ipc::ClientLink::Recording recording{.limit = duration_from(seconds),
                                             .max_events = static_cast<std::uint64_t>(max_events)};
  auto* reply = new QueryReply;
  const int answered =
      query([&, reply](Waiter& waiter) { return link->start_recording(recording, *reply, waiter, deadline); });
  PyObject* started = nullptr;
  if (answered >= 0) started = answered == 1 ? PyBool_FromLong(reply->yes) : Py_NewRef(Py_None);
  delete reply;
  return started;
}

PyObject* client_link_finish_recording(PyObject* self, PyObject* timeout) {
  return ask_for_text(self, timeout, &ipc::ClientLink::finish_recording, PyBytes_FromStringAndSize);
}

PyObject* client_link_configure(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::ClientLink* link = link_of(self);
  PyObject* timeout = Py_None;
  GivenSettings given;
  static const char* names[] = {"timeout", "batch_size", "max_latency", "policy", "slo", nullptr};
  EngineChange change;
  TimePoint deadline;
  if (link == nullptr ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOOO", const_cast<char**>(names), &timeout, &given.batch_size,
                                   &given.max_latency, &given.policy, &given.slo) ||
      !change_from(given, change) || !deadline_from(timeout, deadline)) {
    return nullptr;
  }
  auto* reply = new QueryReply;
  const int answered = query([&, reply](Waiter& waiter) { return link->configure(change, *reply, waiter, deadline); });
  PyObject* done = nullptr;
  if (answered == 1 && !reply->yes) {
    PyErr_SetString(PyExc_ValueError, reply->text.c_str());
  } else if (answered >= 0) {
    done = PyBool_FromLong(answered);
  }
  delete reply;
  return done;
}

PyObject* client_link_wait_ready(PyObject* self, PyObject* timeout) {
  ipc::ClientLink* link = link_of(self);
  TimePoint deadline;
  if (link == nullptr || !deadline_from(timeout, deadline)) return nullptr;
  auto* reply = new QueryReply;
  const int answered = query([&, reply](Waiter& waiter) { return link->wait_ready(*reply, waiter, deadline); });
  PyObject* ready = nullptr;
  if (answered == 1 && !reply->yes) {
    raise_lost(reply->text);
  } else if (answered == 0 && self_of(self)->engine->engine->closed()) {
    raise_message(python::streamer_closed, "the streamer is closed");
  } else if (answered >= 0) {
    ready = PyBool_FromLong(answered);
  }
  delete reply;
  return ready;
}

PyObject* client_link_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  EngineObject* engine;
  const char* address;
  int owner_returns = 1;
  double first_patience = HUGE_VAL;
  static const char* names[] = {"engine", "address", "owner_returns", "first_patience", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!s|pd", const_cast<char**>(names), engine_type, &engine, &address,
                                   &owner_returns, &first_patience)) {
    return nullptr;
  }
  if (!from_this_process(engine) || unattached_backend(engine) == nullptr) return nullptr;
  const ipc::ClientLinkOptions options{.owner_returns = owner_returns != 0,
                                       .first_patience = duration_from(first_patience)};
  return attached_new<ClientLinkObject>(type, engine, [&](ClientLinkObject& self) {
    return attempt([&] {
      auto* object = reinterpret_cast<PyObject*>(&self);
      self.backend = new ClientLinkBackend(object, engine, address, options);
    });
  });
}

PyMethodDef methods[] = {
    {"start", client_link_start, METH_NOARGS,
     "start($self)\n--\n\n"
     "Connects if that is possible at once, and starts the thread that sends requests. Raises PermissionError if\n"
     "another user's process listens there."},
    {"connect_error", client_link_connect_error, METH_NOARGS,
     "connect_error($self)\n--\n\n"
     "Why the last attempt to connect found no engine's process at the address; '': it found one."},
    {"stop", client_link_stop, METH_NOARGS,
     "stop($self)\n--\n\n"
     "Blocks until that thread has ended and the connection is closed. Idempotent."},
    {"stats", client_link_stats, METH_O,
     "stats($self, timeout, /)\n--\n\n"
     "Server.stats() of the engine's process; None: no reply in time."},
    {"configure", as_method(client_link_configure), METH_VARARGS | METH_KEYWORDS,
     "configure($self, *, timeout=None, batch_size=None, max_latency=None, policy=None, slo=None)\n--\n\n"
     "Changes the settings of the engine's process that are not None; False: no reply in time."},
    {"start_recording", client_link_start_recording, METH_VARARGS,
     "start_recording($self, seconds, max_events, timeout, /)\n--\n\n"
     "Engine.start_recording() in the engine's process; False: it has a recording already; None: no reply in time."},
    {"finish_recording", client_link_finish_recording, METH_O,
     "finish_recording($self, timeout, /)\n--\n\n"
     "The events of that recording; b'': there is none; None: no reply in time."},
    {"wait_ready", client_link_wait_ready, METH_O,
     "wait_ready($self, timeout, /)\n--\n\n"
     "Blocks until a worker is ready; False: the time is over. Raises WorkerInitError or WorkerLost if none will be."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Sends the requests of an engine to the engine of another process.")},
    {Py_tp_new, reinterpret_cast<void*>(client_link_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(attached_dealloc<ClientLinkObject>)},
    {Py_tp_traverse, reinterpret_cast<void*>(attached_traverse<ClientLinkObject>)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.ClientLink", sizeof(ClientLinkObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

bool make_client_link_type(PyObject* module) {
  return add_type(module, spec);
}

}  // namespace service_streamer::bindings
