#include "bindings/processes/worker_batch.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/batches/outputs.h"
#include "bindings/processes/worker_batch_object.h"
#include "bindings/python/errors.h"
#include "bindings/python/methods.h"
#include "service_streamer/batching/batch_cut.h"

namespace service_streamer::bindings {

namespace {

using worker_batch::close;
using worker_batch::is_open;
using worker_batch::ItemRange;
using worker_batch::none_unless_error;
using worker_batch::run;
using worker_batch::self_of;
using worker_batch::WorkerBatchObject;

void release(ReceivedBatch* received) {
  if (--received->references == 0) delete received;
}

bool add_error(WorkerBatchObject* self, const char* helper) {
  PyObject* error = call_helper("service_streamer._pickle", helper, nullptr);
  const bool added = error != nullptr && self->received->add_errors(self->shares, error);
  Py_XDECREF(error);
  return added;
}

// --- methods ---

bool complete(WorkerBatchObject* self, PyObject* outputs) {
  ReceivedBatch* received = self->received;
  received->count_predict();
  bool whole = received->output_batch();
  PyObject* array = Py_NewRef(Py_None);
  if (!PyList_CheckExact(outputs) && !PyTuple_CheckExact(outputs)) {
    Py_SETREF(array, call_helper("service_streamer._pickle", "as_array", outputs));
    if (array == nullptr) return false;
    whole = whole || array != Py_None;
  }
  std::vector<std::uint32_t> counts(self->shares.size());
  std::ranges::transform(self->shares, counts.begin(), &ItemRange::count);
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
    const CaughtError failure = attempt([&] {
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
    {"isolate", worker_batch::isolate, METH_O,
     "isolate($self, budget, /)\n--\n\n"
     "Begins the search for the guilty requests after the batch raised: an Isolation.\n\n"
     "`budget`: its time, in multiples of what the batch took."},
    {"take", worker_batch::take, METH_O,
     "take($self, isolation, /)\n--\n\n"
     "Takes out of the batch what runs next: another batch, or this one if that is all of it."},
    {"join", worker_batch::join, METH_O,
     "join($self, group, /)\n--\n\n"
     "Puts back what take() gave."},
    {"postpone", worker_batch::postpone, METH_NOARGS,
     "postpone($self)\n--\n\n"
     "Takes the requests out of which all items are here: each will run alone, when nothing else waits."},
    {"drop_ended", worker_batch::drop_ended, METH_NOARGS,
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

PyTypeObject* worker_batch::type = nullptr;

WorkerBatchObject* worker_batch::make(ReceivedBatch* received) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) {
    release(received);
    return nullptr;
  }
  self_of(self)->received = received;
  std::construct_at(&self_of(self)->shares);
  return self_of(self);
}

bool make_worker_batch_type(PyObject* module) {
  worker_batch::type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return worker_batch::type != nullptr && PyModule_AddType(module, worker_batch::type) == 0;
}

PyObject* unpack(ReceivedBatch* received) {
  if (received->message.unread > 0) {
    bool answered = false;
    const CaughtError failure = attempt([&] { answered = received->answer_unread(); });
    release(received);
    return failure.raise() || !answered ? nullptr : Py_NewRef(Py_None);
  }
  if (!received->open()) {
    release(received);
    return nullptr;
  }
  WorkerBatchObject* batch = worker_batch::make(received);
  if (batch == nullptr) return nullptr;
  batch->items = PyList_New(0);
  bool unpacked = false;
  const CaughtError failure = attempt([&] {
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
