#include "bindings/broker/broker_egress.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "bindings/broker/broker_bodies.h"
#include "bindings/broker/broker_replies.h"
#include "bindings/processes/attached_backend.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/methods.h"

namespace service_streamer::bindings {
namespace {

using TakeStatus = ipc::BrokerEgress::TakeStatus;

struct BrokerEgressObject {
  PyObject_HEAD
  EngineObject* engine;
  EgressBackend* backend;
  std::atomic<bool> taking;  // a thread is in take()
};

BrokerEgressObject* self_of(PyObject* self) {
  return reinterpret_cast<BrokerEgressObject*>(self);
}

// The egress of a method's object; nullptr with StreamerClosed raised in a forked child.
ipc::BrokerEgress* egress_of(PyObject* self) {
  return from_this_process(self_of(self)->engine) ? &self_of(self)->backend->egress : nullptr;
}

// --- requests ---

// A chunk that there is no memory for is lost: it would never be sent.
PyObject* chunk_list(ipc::BrokerEgress& egress, const std::vector<ipc::Chunk>& chunks) {
  PyObject* list = PyList_New(0);
  for (std::size_t i = 0; list != nullptr && i < chunks.size(); ++i) {
    PyObject* tuple = chunk_tuple(chunks[i]);
    if (tuple == nullptr || PyList_Append(list, tuple) < 0) {
      PyErr_Clear();
      const CaughtError failure =
          attempt([&] { egress.forwarded().lose({&chunks[i].id, 1}, "there was no memory to send the request"); });
      if (failure.raise()) Py_CLEAR(list);
    }
    Py_XDECREF(tuple);
  }
  return list;
}

PyObject* taken_tuple(ipc::BrokerEgress& egress, const ipc::BrokerEgress::Taken& taken) {
  PyObject* chunks = chunk_list(egress, taken.chunks);
  PyObject* cancelled = chunks != nullptr ? id_list(taken.cancelled) : nullptr;
  if (cancelled == nullptr) {
    Py_XDECREF(chunks);
    return nullptr;
  }
  return Py_BuildValue("(NN)", chunks, cancelled);
}

// Waits without the GIL, again after every signal whose handler did not raise. False with an exception set.
bool wait_to_take(PyObject* self, std::size_t limit, TimePoint deadline, std::int64_t least_priority,
                  ipc::BrokerEgress::Taken& taken, TakeStatus& status) {
  do {
    ipc::BrokerEgress* egress = egress_of(self);  // a signal handler may have forked
    if (egress == nullptr) return false;
    const CaughtError failure =
        attempt_without_gil([&] { status = egress->take(limit, deadline, taken, least_priority); });
    if (failure.raise()) return false;
    // Callers may have submitted more while this thread waited for the GIL. What there is no memory for stays queued.
    if (status == TakeStatus::kTaken) attempt([&] { egress->take_more(limit, taken, least_priority); });
    if (status == TakeStatus::kInterrupted && PyErr_CheckSignals() < 0) return false;
  } while (status == TakeStatus::kInterrupted);
  return true;
}

PyObject* egress_take(PyObject* object, PyObject* args, PyObject* kwargs) {
  BrokerEgressObject* self = self_of(object);
  Py_ssize_t limit;
  PyObject* timeout;
  TimePoint deadline;
  long long least_priority = kAnyPriority;
  static const char* names[] = {"limit", "timeout", "least_priority", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nO|L", const_cast<char**>(names), &limit, &timeout,
                                   &least_priority)) {
    return nullptr;
  }
  if (!deadline_from(timeout, deadline) || egress_of(object) == nullptr) return nullptr;
  if (limit < 0) return PyErr_Format(PyExc_ValueError, "limit must be at least 0, got %zd", limit);
  if (self->taking.exchange(true)) {
    PyErr_SetString(PyExc_RuntimeError, "another thread is in take()");
    return nullptr;
  }
  auto* taken = new ipc::BrokerEgress::Taken;  // on the heap: this thread may end in the wait
  TakeStatus status = TakeStatus::kNothing;
  PyObject* tuple = nullptr;
  if (wait_to_take(object, static_cast<std::size_t>(limit), deadline, least_priority, *taken, status)) {
    tuple = status == TakeStatus::kStopped ? Py_NewRef(Py_None) : taken_tuple(self->backend->egress, *taken);
  }
  delete taken;
  self->taking = false;
  return tuple;
}

PyObject* egress_chunks(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::BrokerEgress* egress = egress_of(self);
  PyObject* numbers;
  static const char* names[] = {"ids", nullptr};
  if (egress == nullptr || !PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &numbers)) {
    return nullptr;
  }
  auto* ids = new std::vector<std::uint64_t>;
  auto* chunks = new std::vector<ipc::Chunk>;  // on the heap: long copies are made without the GIL
  PyObject* list = nullptr;
  if (ids_from(numbers, *ids) && !attempt([&] { egress->forwarded().unanswered(*ids, *chunks); }).raise()) {
    list = chunk_list(*egress, *chunks);
  }
  delete chunks;
  delete ids;
  return list;
}

// --- replies ---

PyObject* egress_answer(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::BrokerEgress* egress = egress_of(self);
  PyObject* sequence;
  static const char* names[] = {"answers", nullptr};
  if (egress == nullptr || !PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &sequence)) {
    return nullptr;
  }
  auto* answers = new BrokerReplies;
  std::size_t taken = 0;
  bool done = read_replies_from(sequence, *answers);
  if (done) {
    const CaughtError failure = attempt_copying(answers->size, [&] {
      answers->copy_bodies();
      taken = egress->forwarded().answer(answers->answers);
    });
    done = !failure.raise();
  }
  answers->clear();
  delete answers;
  return done ? PyLong_FromSize_t(taken) : nullptr;
}

PyObject* egress_lose(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::BrokerEgress* egress = egress_of(self);
  PyObject *numbers, *text;
  Py_ssize_t size;
  static const char* names[] = {"ids", "note", nullptr};
  if (egress == nullptr ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "OU", const_cast<char**>(names), &numbers, &text)) {
    return nullptr;
  }
  const char* note = PyUnicode_AsUTF8AndSize(text, &size);
  std::vector<std::uint64_t> ids;
  if (note == nullptr || !ids_from(numbers, ids)) return nullptr;
  return none_or_raise(
      attempt([&] { egress->forwarded().lose(ids, std::string(note, static_cast<std::size_t>(size))); }));
}

PyObject* egress_fail(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::BrokerEgress* egress = egress_of(self);
  PyObject *number, *error;
  std::uint64_t id;
  static const char* names[] = {"id", "error", nullptr};
  if (egress == nullptr ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "OS", const_cast<char**>(names), &number, &error) ||
      !id_from(number, id)) {
    return nullptr;
  }
  bool ended = false;
  if (attempt([&] { ended = egress->forwarded().fail(id, copy_of(error)); }).raise()) return nullptr;
  return PyBool_FromLong(ended ? 1 : 0);
}

PyObject* egress_explain(PyObject* self, PyObject* text) {
  Py_ssize_t size;
  const char* note = PyUnicode_AsUTF8AndSize(text, &size);
  if (note == nullptr || egress_of(self) == nullptr) return nullptr;
  return none_or_raise(attempt([&] { self_of(self)->backend->set_note({note, static_cast<std::size_t>(size)}); }));
}

// --- life ---

PyObject* egress_in_flight(PyObject* self, PyObject*) {
  ipc::BrokerEgress* egress = egress_of(self);
  return egress != nullptr ? PyLong_FromSize_t(egress->forwarded().in_flight()) : nullptr;
}

PyObject* egress_interrupt(PyObject* self, PyObject*) {
  ipc::BrokerEgress* egress = egress_of(self);
  return egress != nullptr ? none_or_raise(attempt([&] { egress->interrupt(); })) : nullptr;
}

PyObject* egress_stop(PyObject* self, PyObject*) {
  ipc::BrokerEgress* egress = egress_of(self);
  return egress != nullptr ? none_or_raise(attempt([&] { egress->stop(); })) : nullptr;
}

PyObject* egress_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  EngineObject* engine;
  Py_ssize_t chunk_size;
  static const char* names[] = {"engine", "chunk_size", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!n", const_cast<char**>(names), engine_type, &engine, &chunk_size)) {
    return nullptr;
  }
  if (!from_this_process(engine) || unattached_backend(engine) == nullptr || !check_inline(engine)) return nullptr;
  if (chunk_size < 1 || chunk_size > UINT32_MAX) {
    return PyErr_Format(PyExc_ValueError, "chunk_size must be at least 1 and fit into 32 bits, got %zd", chunk_size);
  }
  return attached_new<BrokerEgressObject>(type, engine, [&](BrokerEgressObject& self) {
    return attempt([&] { self.backend = new EgressBackend(*engine->engine, static_cast<std::uint32_t>(chunk_size)); });
  });
}

constexpr int kWithNames = METH_VARARGS | METH_KEYWORDS;

PyMethodDef methods[] = {
    {"take", as_method(egress_take), kWithNames,
     "take($self, limit, timeout, least_priority=...)\n--\n\n"
     "Blocks until something is queued or cancelled: ([(id, begin, items, deadline, priority, body)], [id]).\n\n"
     "A chunk is a range of the items of a request, about `limit` items in all, or none with 0. Higher priorities go "
     "first, and those below `least_priority` are not taken. `deadline` is a time "
     "of time.monotonic(), or None. The second list has requests that ended with items out that are not answered "
     "(cancelled, timed out, one part failed), each once, but for those of lose() and fail(). ([], []): interrupted, "
     "or not within `timeout` seconds. None: stopped, or the engine is closed and empty, and nothing is in flight. "
     "Watches deadlines meanwhile. For one thread."},
    {"answer", as_method(egress_answer), kWithNames,
     "answer($self, answers)\n--\n\n"
     "Takes [(id, begin, items, body of a result)]; returns how many of them were expected.\n\n"
     "Ignores unknown requests, duplicates, and ranges that are not out. A corrupt body ends its request with "
     "WorkerLost."},
    {"lose", as_method(egress_lose), kWithNames,
     "lose($self, ids, note)\n--\n\n"
     "Ends requests with WorkerLost(note); unknown ones are ignored."},
    {"fail", as_method(egress_fail), kWithNames,
     "fail($self, id, error)\n--\n\n"
     "Ends a request with an exception: the pickle of pickling.pack_error(exception). False: it has ended already."},
    {"explain", egress_explain, METH_O,
     "explain($self, note, /)\n--\n\n"
     "Says in RequestTimeout why requests are not answered; empty: not known."},
    {"chunks", as_method(egress_chunks), kWithNames,
     "chunks($self, ids)\n--\n\n"
     "The chunks of these requests that are out and not answered, once more; unknown requests are ignored."},
    {"in_flight", egress_in_flight, METH_NOARGS,
     "in_flight($self)\n--\n\n"
     "How many requests are handed out."},
    {"interrupt", egress_interrupt, METH_NOARGS,
     "interrupt($self)\n--\n\n"
     "Ends take(), or its next call if no thread is in it."},
    {"stop", egress_stop, METH_NOARGS,
     "stop($self)\n--\n\n"
     "Ends what is handed out with StreamerClosed; take() returns None. Idempotent; never blocks."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Gives out the requests of an engine as bytes, and takes their results.")},
    {Py_tp_new, reinterpret_cast<void*>(egress_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(attached_dealloc<BrokerEgressObject>)},
    {Py_tp_traverse, reinterpret_cast<void*>(attached_traverse<BrokerEgressObject>)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.BrokerEgress", sizeof(BrokerEgressObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

bool make_broker_egress_type(PyObject* module) {
  return add_type(module, spec);
}

}  // namespace service_streamer::bindings
