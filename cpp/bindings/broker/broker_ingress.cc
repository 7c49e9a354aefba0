#include "bindings/broker/broker_ingress.h"

#include <atomic>
#include <utility>
#include <vector>

#include "bindings/broker/broker_bodies.h"
#include "bindings/broker/submissions.h"
#include "bindings/processes/server.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/fork.h"
#include "bindings/python/methods.h"
#include "service_streamer/broker/broker_ingress.h"
#include "service_streamer/wire/broker_body.h"

namespace service_streamer::bindings {

PyTypeObject* broker_ingress_type = nullptr;

namespace {

using TakeStatus = ipc::BrokerIngress::TakeStatus;
using ipc::EndedCall;

struct BrokerIngressObject {
  PyObject_HEAD
  ServerObject* server;
  ipc::BrokerIngress* ingress;
  std::atomic<bool> taking;  // a thread is in take()
};

BrokerIngressObject* self_of(PyObject* self) {
  return reinterpret_cast<BrokerIngressObject*>(self);
}

// --- requests ---

PyObject* ingress_submit(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::BrokerIngress* ingress = ingress_of(self);
  PyObject *number, *body, *deadline, *priority;
  static const char* names[] = {"id", "body", "deadline", "priority", nullptr};
  if (ingress == nullptr || !PyArg_ParseTupleAndKeywords(args, kwargs, "OSOO", const_cast<char**>(names), &number,
                                                         &body, &deadline, &priority)) {
    return nullptr;
  }
  ipc::SubmitHead head;
  if (!id_from(number, head.id) || !time_from(deadline, head.deadline) || !priority_from(priority, head.priority)) {
    return nullptr;
  }
  auto* submissions = new Submissions;
  PyObject* items = nullptr;
  const CaughtError failure = attempt([&] { submissions->add(head, body); });
  if (!failure.raise() && submissions->submit(*ingress)) items = items_or_raise(submissions->all.front());
  submissions->clear();
  delete submissions;
  return items;
}

PyObject* ingress_cancel(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::BrokerIngress* ingress = ingress_of(self);
  PyObject* numbers;
  static const char* names[] = {"ids", nullptr};
  if (ingress == nullptr || !PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &numbers)) {
    return nullptr;
  }
  std::vector<std::uint64_t> ids;
  if (!ids_from(numbers, ids)) return nullptr;
  return none_or_raise(attempt([&] { ingress->cancel(ids); }));
}

// --- results ---

bool has_body(const EndedCall& end) {
  return end.outcome == Outcome::kAnswered || end.outcome == Outcome::kFailed || end.outcome == Outcome::kLost ||
         end.outcome == Outcome::kRefused;
}

PyObject* body_of(const EndedCall& end) {
  if (!has_body(end)) return PyBytes_FromStringAndSize(nullptr, 0);
  return make_body(ipc::body_size(end), [&](char* to) { ipc::write_body(end, to); });
}

// The result is lost if there is no memory for its body.
PyObject* body_or_loss(EndedCall& end) {
  PyObject* body = body_of(end);
  if (body != nullptr) return body;
  PyErr_Clear();
  const CaughtError failure = attempt([&] {
    end.outcome = Outcome::kLost;
    end.note = "there was no memory to send the result";
    end.ranges.clear();
  });
  return failure.raise() ? nullptr : body_of(end);
}

PyObject* end_list(std::vector<EndedCall>& ends) {
  PyObject* list = PyList_New(0);
  for (std::size_t i = 0; list != nullptr && i < ends.size(); ++i) {
    PyObject* body = body_or_loss(ends[i]);
    PyObject* tuple =
        body != nullptr ? Py_BuildValue("(KN)", static_cast<unsigned long long>(ends[i].id), body) : nullptr;
    if (!append(list, tuple)) Py_CLEAR(list);
  }
  return list;
}

// Waits without the GIL, again after every signal whose handler did not raise. False with an exception set.
bool wait_to_take(PyObject* self, TimePoint deadline, std::vector<EndedCall>& ends, TakeStatus& status) {
  do {
    ipc::BrokerIngress* ingress = ingress_of(self);  // a signal handler may have forked
    if (ingress == nullptr) return false;
    const CaughtError failure = attempt_without_gil([&] { status = ingress->take(deadline, ends); });
    if (failure.raise()) return false;
    if (status == TakeStatus::kInterrupted && PyErr_CheckSignals() < 0) return false;
  } while (status == TakeStatus::kInterrupted);
  return true;
}

PyObject* ingress_take(PyObject* object, PyObject* args, PyObject* kwargs) {
  BrokerIngressObject* self = self_of(object);
  PyObject* timeout;
  TimePoint deadline;
  static const char* names[] = {"timeout", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &timeout)) return nullptr;
  if (!deadline_from(timeout, deadline) || ingress_of(object) == nullptr) return nullptr;
  if (self->taking.exchange(true)) {
    PyErr_SetString(PyExc_RuntimeError, "another thread is in take()");
    return nullptr;
  }
  auto* ends = new std::vector<EndedCall>;  // on the heap: this thread may end in the wait
  TakeStatus status = TakeStatus::kNothing;
  PyObject* list = nullptr;
  if (wait_to_take(object, deadline, *ends, status)) {
    list = status == TakeStatus::kStopped ? Py_NewRef(Py_None) : end_list(*ends);
  }
  delete ends;
  self->taking = false;
  return list;
}

// --- life ---

PyObject* ingress_interrupt(PyObject* self, PyObject*) {
  ipc::BrokerIngress* ingress = ingress_of(self);
  return ingress != nullptr ? none_or_raise(attempt([&] { ingress->interrupt(); })) : nullptr;
}

PyObject* ingress_stop(PyObject* self, PyObject*) {
  ipc::BrokerIngress* ingress = ingress_of(self);
  return ingress != nullptr ? none_or_raise(attempt([&] { ingress->stop(); })) : nullptr;
}

PyObject* ingress_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  ServerObject* server;
  static const char* names[] = {"server", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!", const_cast<char**>(names), server_type, &server)) {
    return nullptr;
  }
  if (!from_this_process(server->engine) || !check_inline(server->engine)) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  self_of(self)->server = reinterpret_cast<ServerObject*>(Py_NewRef(reinterpret_cast<PyObject*>(server)));
  const CaughtError failure = attempt(
      [&] { self_of(self)->ingress = new ipc::BrokerIngress(*server->engine->engine, server->backend->server); });
  if (failure.raise()) Py_CLEAR(self);
  return self;
}

int ingress_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<PyObject*>(self_of(self)->server));
  return 0;
}

void ingress_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  BrokerIngressObject* self = self_of(object);
  if (self->ingress != nullptr && self->server->engine->fork_generation == fork_generation()) delete self->ingress;
  Py_CLEAR(self->server);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

constexpr int kWithNames = METH_VARARGS | METH_KEYWORDS;

PyMethodDef methods[] = {
    {"submit", as_method(ingress_submit), kWithNames,
     "submit($self, id, body, deadline, priority)\n--\n\n"
     "Submits a request; returns its number of items. Never blocks: max_queue does not count here.\n\n"
     "`deadline` is a time of time.monotonic(), or None. Raises ValueError for a malformed body, or a number that was "
     "not taken yet, and StreamerClosed."},
    {"cancel", as_method(ingress_cancel), kWithNames,
     "cancel($self, ids)\n--\n\n"
     "Cancels requests; unknown ones are ignored."},
    {"take", as_method(ingress_take), kWithNames,
     "take($self, timeout)\n--\n\n"
     "Blocks until requests have ended: [(id, body of the result)], each once.\n\n"
     "Without a result (cancelled, timed out, or the engine was closed) the body is empty. []: interrupted, or not "
     "within `timeout` seconds. None: stopped, and everything was taken. For one thread."},
    {"interrupt", ingress_interrupt, METH_NOARGS,
     "interrupt($self)\n--\n\n"
     "Ends take(), or its next call if no thread is in it."},
    {"stop", ingress_stop, METH_NOARGS,
     "stop($self)\n--\n\n"
     "Cancels the requests that are left, and takes no more; take() returns what has ended, then None. Idempotent."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc,
     const_cast<char*>("Submits requests that came as bytes to a server's engine, and gives their results as "
                       "bytes.")},
    {Py_tp_new, reinterpret_cast<void*>(ingress_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(ingress_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(ingress_traverse)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.BrokerIngress", sizeof(BrokerIngressObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

bool make_broker_ingress_type(PyObject* module) {
  broker_ingress_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return broker_ingress_type != nullptr && PyModule_AddType(module, broker_ingress_type) == 0;
}

ipc::BrokerIngress* ingress_of(PyObject* self) {
  return from_this_process(self_of(self)->server->engine) ? self_of(self)->ingress : nullptr;
}

}  // namespace service_streamer::bindings
