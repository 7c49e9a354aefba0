#include "bindings/broker/broker_egress.h"

#include <string>
#include <utility>
#include <vector>

#include "bindings/broker/broker_bodies.h"
#include "bindings/broker/broker_replies.h"
#include "bindings/engine/engine.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/fork.h"
#include "bindings/python/methods.h"
#include "service_streamer/broker/broker_egress.h"

namespace service_streamer::bindings {
namespace {

using Got = ipc::Outlet::Got;

struct OutletObject {
  PyObject_HEAD
  EngineObject* engine;
  ipc::Outlet* outlet;
  bool taking;  // a thread is in take()
};

OutletObject* self_of(PyObject* self) {
  return reinterpret_cast<OutletObject*>(self);
}

// That of a method's object; nullptr with StreamerClosed raised in a forked child.
ipc::Outlet* outlet_of(PyObject* self) {
  return from_this_process(self_of(self)->engine) ? self_of(self)->outlet : nullptr;
}

PyObject* none_or_raise(const Failure& failure) {
  if (failure.raise()) return nullptr;
  Py_RETURN_NONE;
}

// --- what goes out ---

// One for which there is no memory is lost: nobody would ever send it.
PyObject* parcel_list(ipc::Outlet& outlet, const std::vector<ipc::Parcel>& parcels) {
  PyObject* list = PyList_New(0);
  for (std::size_t i = 0; list != nullptr && i < parcels.size(); ++i) {
    PyObject* tuple = parcel_tuple(parcels[i]);
    if (tuple == nullptr || PyList_Append(list, tuple) < 0) {
      PyErr_Clear();
      const Failure failure =
          attempt([&] { outlet.handed_out().lose({&parcels[i].id, 1}, "there was no memory to send the request"); });
      if (failure.raise()) Py_CLEAR(list);
    }
    Py_XDECREF(tuple);
  }
  return list;
}

PyObject* taken_tuple(ipc::Outlet& outlet, const ipc::Outlet::Taken& taken) {
  PyObject* parcels = parcel_list(outlet, taken.parcels);
  PyObject* withdrawn = parcels != nullptr ? id_list(taken.withdrawn) : nullptr;
  if (withdrawn == nullptr) {
    Py_XDECREF(parcels);
    return nullptr;
  }
  return Py_BuildValue("(NN)", parcels, withdrawn);
}

// Waits without the GIL, again after every signal whose handler did not raise. False with an exception set.
bool wait_to_take(PyObject* self, std::size_t limit, TimePoint deadline, ipc::Outlet::Taken& taken, Got& got) {
  do {
    ipc::Outlet* outlet = outlet_of(self);  // a signal handler may have forked
    if (outlet == nullptr) return false;
    const Failure failure = attempt_without_gil([&] { got = outlet->take(limit, deadline, taken); });
    if (failure.raise()) return false;
    if (got == Got::kInterrupted && PyErr_CheckSignals() < 0) return false;
  } while (got == Got::kInterrupted);
  return true;
}

PyObject* outlet_take(PyObject* object, PyObject* args, PyObject* kwargs) {
  OutletObject* self = self_of(object);
  Py_ssize_t limit;
  PyObject* timeout;
  TimePoint deadline;
  static const char* names[] = {"limit", "timeout", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nO", const_cast<char**>(names), &limit, &timeout)) return nullptr;
  if (!deadline_from(timeout, deadline) || outlet_of(object) == nullptr) return nullptr;
  if (limit < 0) return PyErr_Format(PyExc_ValueError, "limit must be at least 0, got %zd", limit);
  if (self->taking) {
    PyErr_SetString(PyExc_RuntimeError, "another thread is in take()");
    return nullptr;
  }
  self->taking = true;
  auto* taken = new ipc::Outlet::Taken;  // on the heap: this thread may end in the wait
  Got got = Got::kNothing;
  PyObject* tuple = nullptr;
  if (wait_to_take(object, static_cast<std::size_t>(limit), deadline, *taken, got)) {
    tuple = got == Got::kStopped ? Py_NewRef(Py_None) : taken_tuple(*self->outlet, *taken);
  }
  delete taken;
  self->taking = false;
  return tuple;
}

PyObject* outlet_take_now(PyObject* object, PyObject* number) {
  ipc::Outlet* outlet = outlet_of(object);
  const Py_ssize_t limit = outlet != nullptr ? PyLong_AsSsize_t(number) : -1;
  if (outlet == nullptr || PyErr_Occurred() != nullptr) return nullptr;
  if (limit < 0) return PyErr_Format(PyExc_ValueError, "limit must be at least 0, got %zd", limit);
  ipc::Outlet::Taken taken;
  bool has_taken = false;
  const Failure failure = attempt([&] { has_taken = outlet->take_now(static_cast<std::size_t>(limit), taken); });
  if (failure.raise()) return nullptr;
  return has_taken ? taken_tuple(*outlet, taken) : Py_NewRef(Py_None);
}

PyObject* outlet_parcels(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::Outlet* outlet = outlet_of(self);
  PyObject* numbers;
  static const char* names[] = {"ids", nullptr};
  if (outlet == nullptr || !PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &numbers)) {
    return nullptr;
  }
  auto* ids = new std::vector<std::uint64_t>;
  auto* parcels = new std::vector<ipc::Parcel>;  // on the heap: long copies are made without the GIL
  PyObject* list = nullptr;
  if (ids_from(numbers, *ids) && !attempt([&] { outlet->handed_out().unanswered(*ids, *parcels); }).raise()) {
    list = parcel_list(*outlet, *parcels);
  }
  delete parcels;
  delete ids;
  return list;
}

// --- what comes back ---

PyObject* outlet_answer(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::Outlet* outlet = outlet_of(self);
  PyObject* sequence;
  static const char* names[] = {"answers", nullptr};
  if (outlet == nullptr || !PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &sequence)) {
    return nullptr;
  }
  auto* answers = new Answers;
  std::size_t taken = 0;
  bool done = read_answers(sequence, *answers);
  if (done) {
    const Failure failure = attempt_copying(answers->size, [&] {
      answers->copy_bodies();
      taken = outlet->handed_out().answer(answers->answers);
    });
    done = !failure.raise();
  }
  answers->clear();
  delete answers;
  return done ? PyLong_FromSize_t(taken) : nullptr;
}

PyObject* outlet_lose(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::Outlet* outlet = outlet_of(self);
  PyObject *numbers, *text;
  Py_ssize_t size;
  static const char* names[] = {"ids", "note", nullptr};
  if (outlet == nullptr ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "OU", const_cast<char**>(names), &numbers, &text)) {
    return nullptr;
  }
  const char* note = PyUnicode_AsUTF8AndSize(text, &size);
  std::vector<std::uint64_t> ids;
  if (note == nullptr || !ids_from(numbers, ids)) return nullptr;
  return none_or_raise(
      attempt([&] { outlet->handed_out().lose(ids, std::string(note, static_cast<std::size_t>(size))); }));
}

PyObject* outlet_fail(PyObject* self, PyObject* args, PyObject* kwargs) {
  ipc::Outlet* outlet = outlet_of(self);
  PyObject *number, *error;
  std::uint64_t id;
  static const char* names[] = {"id", "error", nullptr};
  if (outlet == nullptr ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "OS", const_cast<char**>(names), &number, &error) ||
      !id_from(number, id)) {
    return nullptr;
  }
  return none_or_raise(attempt([&] { outlet->handed_out().fail(id, copy_of(error)); }));
}

// --- life ---

PyObject* outlet_in_flight(PyObject* self, PyObject*) {
  ipc::Outlet* outlet = outlet_of(self);
  return outlet != nullptr ? PyLong_FromSize_t(outlet->handed_out().in_flight()) : nullptr;
}

PyObject* outlet_interrupt(PyObject* self, PyObject*) {
  ipc::Outlet* outlet = outlet_of(self);
  return outlet != nullptr ? none_or_raise(attempt([&] { outlet->interrupt(); })) : nullptr;
}

PyObject* outlet_stop(PyObject* self, PyObject*) {
  ipc::Outlet* outlet = outlet_of(self);
  return outlet != nullptr ? none_or_raise(attempt([&] { outlet->stop(); })) : nullptr;
}

PyObject* outlet_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  EngineObject* engine;
  Py_ssize_t chunk_size;
  static const char* names[] = {"engine", "chunk_size", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!n", const_cast<char**>(names), engine_type, &engine, &chunk_size)) {
    return nullptr;
  }
  if (!from_this_process(engine) || !check_remote(engine) || !check_inline(engine)) return nullptr;
  if (chunk_size < 1 || chunk_size > UINT32_MAX) {
    return PyErr_Format(PyExc_ValueError, "chunk_size must be at least 1 and fit into 32 bits, got %zd", chunk_size);
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  self_of(self)->engine = reinterpret_cast<EngineObject*>(Py_NewRef(reinterpret_cast<PyObject*>(engine)));
  const Failure failure = attempt(
      [&] { self_of(self)->outlet = new ipc::Outlet(*engine->engine, static_cast<std::uint32_t>(chunk_size)); });
  if (failure.raise()) {
    Py_DECREF(self);
    return nullptr;
  }
  engine->outlet = self_of(self)->outlet;
  return self;
}

int outlet_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<PyObject*>(self_of(self)->engine));
  return 0;
}

void outlet_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  OutletObject* self = self_of(object);
  if (self->outlet != nullptr && self->engine->fork_generation == fork_generation()) {
    self->engine->outlet = nullptr;
    delete self->outlet;
  }
  Py_CLEAR(self->engine);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

constexpr int kWithNames = METH_VARARGS | METH_KEYWORDS;

PyMethodDef methods[] = {
    {"take", as_method(outlet_take), kWithNames,
     "take($self, limit, timeout)\n--\n\n"
     "Blocks until something is queued or withdrawn: ([(id, begin, items, deadline, priority, body)], [id]).\n\n"
     "A parcel is a range of the items of a request, about `limit` items in all, or none with 0; `deadline` is a time "
     "of time.monotonic(), or None. The second list has requests that ended with items out that are not answered "
     "(cancelled, timed out, one part failed), each once, but for those of lose() and fail(). ([], []): interrupted, "
     "or "
     "not within `timeout` seconds. None: stopped, or the engine is closed and empty, and nothing is in flight. "
     "Watches deadlines meanwhile. For one thread."},
    {"take_now", outlet_take_now, METH_O,
     "take_now($self, limit, /)\n--\n\n"
     "What take() would return now, for any thread while the one in take() sleeps; None: it does not, or is "
     "stopped.\n\n"
     "Never blocks. When that thread is woken its take() returns ([], [])."},
    {"answer", as_method(outlet_answer), kWithNames,
     "answer($self, answers)\n--\n\n"
     "Takes [(id, begin, items, body of a result)]; returns how many of them somebody waited for.\n\n"
     "Ignores what is unknown, a duplicate, or of a range that is not out. A corrupt body ends its request with "
     "WorkerLost."},
    {"lose", as_method(outlet_lose), kWithNames,
     "lose($self, ids, note)\n--\n\n"
     "Ends requests with WorkerLost(note); unknown ones are left out."},
    {"fail", as_method(outlet_fail), kWithNames,
     "fail($self, id, error)\n--\n\n"
     "Ends a request with an exception: the pickle of _pickle.pack_error(exception)."},
    {"parcels", as_method(outlet_parcels), kWithNames,
     "parcels($self, ids)\n--\n\n"
     "What of them is out and not answered, once more; unknown ones are left out."},
    {"in_flight", outlet_in_flight, METH_NOARGS,
     "in_flight($self)\n--\n\n"
     "How many requests are handed out."},
    {"interrupt", outlet_interrupt, METH_NOARGS,
     "interrupt($self)\n--\n\n"
     "Ends take(), or the next one if nobody is in it."},
    {"stop", outlet_stop, METH_NOARGS,
     "stop($self)\n--\n\n"
     "Ends what is handed out with StreamerClosed; take() returns None. Idempotent; never blocks."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Hands the requests of an engine out as bytes, and takes their answers.")},
    {Py_tp_new, reinterpret_cast<void*>(outlet_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(outlet_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(outlet_traverse)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.Outlet", sizeof(OutletObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                    slots};

}  // namespace

bool make_outlet_type(PyObject* module) {
  return add_type(module, spec);
}

}  // namespace service_streamer::bindings
