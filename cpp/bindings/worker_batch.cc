#include "bindings/worker_batch.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/errors.h"
#include "bindings/isolation.h"
#include "bindings/methods.h"
#include "bindings/outputs.h"
#include "service_streamer/batching/batch_cut.h"

namespace service_streamer::bindings {
namespace {

using Share = Received::Share;

// A batch of another process' engine, or a piece of one that was split, on its way through a worker: for Python the same as
// Batch. Dropped before it was completed, its requests are lost.
struct WorkerBatchObject {
  PyObject_HEAD
  Received* received;
  PyObject* items;            // list; a model may change the one that it gets
  std::vector<Share> shares;  // empty once completed
};

PyTypeObject* batch_type = nullptr;

WorkerBatchObject* self_of(PyObject* self) {
  return reinterpret_cast<WorkerBatchObject*>(self);
}

void release(Received* received) {
  if (--received->references == 0) delete received;
}

// Takes a reference to `received` over.
WorkerBatchObject* new_batch(Received* received) {
  PyObject* self = batch_type->tp_alloc(batch_type, 0);
  if (self == nullptr) {
    release(received);
    return nullptr;
  }
  self_of(self)->received = received;
  std::construct_at(&self_of(self)->shares);
  return self_of(self);
}

// Raises for a batch that was completed, or that is the parent's (which will answer it): then without an exception.
bool is_open(WorkerBatchObject* self) {
  if (!self->received->from_this_process()) return false;
  if (!self->shares.empty()) return true;
  PyErr_SetString(PyExc_RuntimeError, "the batch was completed before");
  return false;
}

PyObject* none_unless_error() {
  if (PyErr_Occurred() != nullptr) return nullptr;
  Py_RETURN_NONE;
}

bool close(WorkerBatchObject* self) {
  self->shares.clear();
  Py_CLEAR(self->items);
  return self->received->send_when_complete();
}

bool add_error(WorkerBatchObject* self, const char* helper) {
  PyObject* error = call_helper("service_streamer._pickle", helper, nullptr);
  const bool added = error != nullptr && self->received->add_errors(self->shares, error);
  Py_XDECREF(error);
  return added;
}

// --- methods ---

bool complete(WorkerBatchObject* self, PyObject* outputs) {
  Received* received = self->received;
  received->count_predict();
  bool whole = received->output_batch();
  PyObject* array = Py_NewRef(Py_None);
  if (!PyList_CheckExact(outputs) && !PyTuple_CheckExact(outputs)) {
    Py_SETREF(array, call_helper("service_streamer._pickle", "as_array", outputs));
    if (array == nullptr) return false;
    whole = whole || array != Py_None;
  }
  std::vector<std::uint32_t> counts(self->shares.size());
  std::ranges::transform(self->shares, counts.begin(), &Share::count);
  std::vector<PyObject*> slices;
  const bool cut = cut_outputs(array != Py_None ? array : outputs, counts, whole, slices);
  Py_DECREF(array);
  if (!cut) return false;
  bool added = true;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    added = added && received->add_outputs(self->shares[i], slices[i]);
    Py_DECREF(slices[i]);
  }
  return added && close(self);
}

// Whether `step` did it, otherwise with an exception set: it has set one, or threw.
template <typename Step>
bool run(Step step) {
  bool done = false;
  const Failure failure = attempt([&] { done = step(); });
  return !failure.raise() && done;
}

PyObject* batch_complete(PyObject* self, PyObject* outputs) {
  if (!complete_worker_batch(self, Py_NewRef(outputs))) return nullptr;
  Py_RETURN_NONE;
}

PyObject* batch_fail(PyObject* object, PyObject* error) {
  WorkerBatchObject* self = self_of(object);
  if (!is_open(self)) return none_unless_error();
  if (!PyExceptionInstance_Check(error)) {
    PyErr_Format(PyExc_TypeError, "fail() takes an exception, got %.200s", Py_TYPE(error)->tp_name);
    return nullptr;
  }
  self->received->count_predict();
  if (!run([&] { return self->received->add_errors(self->shares, error) && close(self); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* batch_isolate(PyObject* object, PyObject* budget) {
  const WorkerBatchObject* self = self_of(object);
  const double multiple = PyFloat_AsDouble(budget);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return make_isolation({.requests = self->shares.size(),
                         .items = count_items(self->shares),
                         .begin = self->received->mark(),
                         .end = Clock::now()},
                        multiple);
}

PyObject* batch_take(PyObject* object, PyObject* chooser) {
  WorkerBatchObject* self = self_of(object);
  if (!is_open(self)) return none_unless_error();
  Isolation* isolation = isolation_of(chooser);
  if (isolation == nullptr) return nullptr;
  const BatchCut cut = isolation->next(self->shares);
  const auto items = static_cast<Py_ssize_t>(cut.items);
  if (items == PyList_GET_SIZE(self->items)) return Py_NewRef(object);
  ++self->received->references;
  WorkerBatchObject* first = new_batch(self->received);
  if (first == nullptr) return nullptr;
  PyObject* taken = reinterpret_cast<PyObject*>(first);
  std::vector<Share> before;
  first->items = PyList_GetSlice(self->items, 0, items);
  if (first->items == nullptr || attempt([&] { before = self->shares; }).raise() ||
      PyList_SetSlice(self->items, 0, items, nullptr) < 0) {
    Py_DECREF(taken);
    return nullptr;
  }
  keep_before(cut, before);
  keep_behind(cut, self->shares);
  first->shares = std::move(before);
  self->received->isolated = true;
  return taken;
}

PyObject* batch_join(PyObject* object, PyObject* group) {
  WorkerBatchObject* self = self_of(object);
  if (group == object) Py_RETURN_NONE;
  if (!PyObject_TypeCheck(group, batch_type)) {
    PyErr_Format(PyExc_TypeError, "join() takes a WorkerBatch, got %.200s", Py_TYPE(group)->tp_name);
    return nullptr;
  }
  WorkerBatchObject* first = self_of(group);
  if (!is_open(self) || !is_open(first)) return none_unless_error();
  const auto join = [&] {
    self->shares.reserve(self->shares.size() + first->shares.size());
    if (PyList_SetSlice(self->items, 0, 0, first->items) < 0) return false;
    put_before(self->shares, first->shares, [](const Share&) {});
    first->shares.clear();
    return true;
  };
  if (!run(join)) return nullptr;
  Py_RETURN_NONE;
}

// Takes the shares out that have a result, and their items.
bool keep_open(WorkerBatchObject* self) {
  std::vector<Share>& shares = self->shares;
  Py_ssize_t end = PyList_GET_SIZE(self->items);
  for (auto share = shares.rbegin(); share != shares.rend(); ++share) {
    const Py_ssize_t begin = end - static_cast<Py_ssize_t>(share->count);
    if (!self->received->is_open(*share) && PyList_SetSlice(self->items, begin, end, nullptr) < 0) return false;
    end = begin;
  }
  std::erase_if(shares, [&](const Share& share) { return !self->received->is_open(share); });
  return true;
}

// The same with those whose time is over.
bool drop_ended(WorkerBatchObject* self) {
  const TimePoint now = Clock::now();
  for (const Share& share : self->shares) {
    if (!self->received->is_open(share) || self->received->message.parts[share.part].deadline > now) continue;
    PyObject* error = call_helper("service_streamer._pickle", "expired", nullptr);
    const bool added = error != nullptr && self->received->add_error(share, error);
    Py_XDECREF(error);
    if (!added) return false;
  }
  return keep_open(self) && (!self->shares.empty() || close(self));
}

// The same with those that are to run alone later.
bool postpone(WorkerBatchObject* self) {
  for (const Share& share : self->shares) {
    if (self->received->is_whole(share) && !self->received->postpone(share)) return false;
  }
  return keep_open(self) && (!self->shares.empty() || close(self));
}

PyObject* batch_postpone(PyObject* object, PyObject*) {
  WorkerBatchObject* self = self_of(object);
  if (!is_open(self)) return none_unless_error();
  if (!run([&] { return postpone(self); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* batch_drop_ended(PyObject* object, PyObject*) {
  WorkerBatchObject* self = self_of(object);
  if (!is_open(self)) return PyErr_Occurred() != nullptr ? nullptr : Py_NewRef(Py_False);
  if (!run([&] { return drop_ended(self); })) return nullptr;
  return PyBool_FromLong(self->shares.empty() ? 0 : 1);
}

Py_ssize_t batch_length(PyObject* self) {
  return static_cast<Py_ssize_t>(count_items(self_of(self)->shares));
}

PyObject* batch_items(PyObject* self, void*) {
  return items_of_worker_batch(self);
}

PyObject* batch_requests(PyObject* self, void*) {
  return PyLong_FromSize_t(self_of(self)->shares.size());
}

// What only the engine knows.
PyObject* batch_reason(PyObject*, void*) {
  return PyUnicode_FromString("");
}

PyObject* batch_age(PyObject*, void*) {
  return PyFloat_FromDouble(0.0);
}

int batch_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self_of(self)->items);
  return 0;
}

void batch_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  WorkerBatchObject* self = self_of(object);
  if (!self->shares.empty() && self->received->from_this_process()) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    const Failure failure = attempt([&] {
      if (!add_error(self, "dropped") || !close(self)) PyErr_WriteUnraisable(nullptr);
    });
    if (failure.raise()) PyErr_WriteUnraisable(nullptr);
    PyErr_Restore(type, error, traceback);
  }
  Py_CLEAR(self->items);
  std::destroy_at(&self->shares);
  release(self->received);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"complete", batch_complete, METH_O,
     "complete($self, outputs, /)\n--\n\n"
     "Answers everybody with his part of `outputs`, one for each item.\n\n"
     "Raises OutputSizeMismatch or TypeError for outputs that cannot be shared out; nobody is answered then."},
    {"fail", batch_fail, METH_O,
     "fail($self, error, /)\n--\n\n"
     "Ends every request of the batch with the exception."},
    {"isolate", batch_isolate, METH_O,
     "isolate($self, budget, /)\n--\n\n"
     "Begins the search for the guilty requests after the batch raised: an Isolation.\n\n"
     "`budget`: its time, in multiples of what the batch took."},
    {"take", batch_take, METH_O,
     "take($self, isolation, /)\n--\n\n"
     "Takes out of the batch what runs next: another batch, or this one if that is all of it."},
    {"join", batch_join, METH_O,
     "join($self, group, /)\n--\n\n"
     "Puts back what take() gave."},
    {"postpone", batch_postpone, METH_NOARGS,
     "postpone($self)\n--\n\n"
     "Takes the requests out of which all items are here: each will run alone, when nothing else waits."},
    {"drop_ended", batch_drop_ended, METH_NOARGS,
     "drop_ended($self)\n--\n\n"
     "Takes out what failed or expired meanwhile, before a piece of a batch runs again; False: nothing is left."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef attributes[] = {
    {"items", batch_items, nullptr, "What predict_function gets: a plain list, a new one each time.", nullptr},
    {"requests", batch_requests, nullptr, "How many requests have a part in it.", nullptr},
    {"reason", batch_reason, nullptr, "Empty: only the engine knows.", nullptr},
    {"age", batch_age, nullptr, "0: only the engine knows.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("What one call of the model works on, in a worker process. A batch dropped without "
                                  "complete() or fail() ends its requests with WorkerLost.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(batch_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(batch_traverse)},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {Py_sq_length, reinterpret_cast<void*>(batch_length)},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.WorkerBatch", sizeof(WorkerBatchObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

bool make_worker_batch_type(PyObject* module) {
  batch_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return batch_type != nullptr && PyModule_AddType(module, batch_type) == 0;
}

PyObject* unpack(Received* received) {
  if (received->message.unread > 0) {
    bool answered = false;
    const Failure failure = attempt([&] { answered = received->answer_unread(); });
    release(received);
    return failure.raise() || !answered ? nullptr : Py_NewRef(Py_None);
  }
  if (!received->open()) {
    release(received);
    return nullptr;
  }
  WorkerBatchObject* batch = new_batch(received);
  if (batch == nullptr) return nullptr;
  batch->items = PyList_New(0);
  bool unpacked = false;
  const Failure failure = attempt([&] {
    unpacked = batch->items != nullptr && received->unpack(batch->items, batch->shares) &&
               (!batch->shares.empty() || close(batch));
  });
  PyObject* object = reinterpret_cast<PyObject*>(batch);
  if (failure.raise() || !unpacked) {
    Py_CLEAR(object);
  } else if (batch->shares.empty()) {
    Py_SETREF(object, Py_NewRef(Py_None));
  }
  return object;
}

PyObject* items_of_worker_batch(PyObject* self) {
  PyObject* items = self_of(self)->items;
  return items != nullptr ? PySequence_List(items) : PyList_New(0);
}

bool complete_worker_batch(PyObject* object, PyObject* outputs) {
  WorkerBatchObject* self = self_of(object);
  const bool done = is_open(self) ? run([&] { return complete(self, outputs); }) : PyErr_Occurred() == nullptr;
  Py_DECREF(outputs);
  return done;
}

}  // namespace service_streamer::bindings
