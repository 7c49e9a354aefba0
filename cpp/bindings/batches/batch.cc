#include "bindings/batches/batch.h"

#include <typeinfo>
#include <utility>

#include "bindings/batches/isolation.h"
#include "bindings/batches/own_outputs.h"
#include "bindings/python/contexts.h"
#include "bindings/python/errors.h"
#include "bindings/python/methods.h"

namespace service_streamer::bindings {
namespace {

struct BatchObject {
  PyObject_HEAD
  BatchBase* batch;
};

PyTypeObject* batch_type = nullptr;

BatchBase& batch_of(PyObject* self) {
  return *reinterpret_cast<BatchObject*>(self)->batch;
}

std::size_t ranges_of(const BatchBase& batch) {
  const Locked lock(batch.guard());
  return batch.ranges();
}

bool is_open(const BatchBase& batch) {
  if (ranges_of(batch) > 0) return true;
  PyErr_SetString(PyExc_RuntimeError, "the batch was completed before");
  return false;
}

// One thread at a time changes a batch. With a GIL, threads that do not keep to that get the same error or none.
class Use {
 public:
  explicit Use(BatchBase& batch) : batch_(batch), alone_(kHasGil || !batch.in_use.exchange(true)) {}
  ~Use() {
    if (!kHasGil && alone_) batch_.in_use = false;
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  // False with an exception set.
  bool begin() const {
    if (!alone_) PyErr_SetString(PyExc_RuntimeError, "another thread completes the batch");
    return alone_ && is_open(batch_);
  }

 private:
  BatchBase& batch_;
  const bool alone_;
};

PyObject* none_if(bool done) {
  return done ? Py_NewRef(Py_None) : nullptr;
}

// --- methods ---

PyObject* batch_complete(PyObject* self, PyObject* outputs) {
  return none_if(complete_batch(self, outputs, nullptr));
}

PyObject* batch_fail(PyObject* self, PyObject* error) {
  BatchBase& batch = batch_of(self);
  if (!batch.from_this_process()) Py_RETURN_NONE;
  const Use use(batch);
  if (!use.begin()) return nullptr;
  if (!PyExceptionInstance_Check(error)) {
    return PyErr_Format(PyExc_TypeError, "fail() takes an exception, got %.200s", Py_TYPE(error)->tp_name);
  }
  return none_if(batch.fail(error));
}

PyObject* batch_isolate(PyObject* self, PyObject* budget) {
  BatchBase& batch = batch_of(self);
  const double multiple = PyFloat_AsDouble(budget);
  if (PyErr_Occurred() != nullptr) return nullptr;
  std::shared_ptr<Isolation> isolation;
  const Isolation::FirstRun first{
      .requests = batch.ranges(), .items = batch.size(), .begin = batch.begun(), .end = Clock::now()};
  if (attempt([&] { isolation = std::make_shared<Isolation>(first, multiple); }).raise()) return nullptr;
  batch.isolate_by(isolation);
  return make_isolation(isolation);
}

PyObject* batch_take(PyObject* self, PyObject* chooser) {
  BatchBase& batch = batch_of(self);
  if (!batch.from_this_process()) Py_RETURN_NONE;
  Isolation* isolation = isolation_of(chooser);
  const Use use(batch);
  if (isolation == nullptr || !use.begin()) return nullptr;
  const BatchCut cut = batch.next(*isolation);
  if (cut.items == batch.size()) return Py_NewRef(self);
  const auto items = static_cast<Py_ssize_t>(cut.items);
  PyObject* front = PyList_GetSlice(batch.items, 0, items);
  PyObject* rest = PyList_GetSlice(batch.items, items, PyList_GET_SIZE(batch.items));
  BatchBase* first = front != nullptr && rest != nullptr ? batch.split(cut) : nullptr;
  if (first == nullptr) {
    Py_XDECREF(front);
    Py_XDECREF(rest);
    return nullptr;
  }
  first->items = front;
  Py_DECREF(batch.exchange_items(rest));
  return make_batch(first);
}

PyObject* batch_join(PyObject* self, PyObject* group) {
  BatchBase& batch = batch_of(self);
  if (group == self || !batch.from_this_process()) Py_RETURN_NONE;
  if (Py_TYPE(group) != batch_type) {
    return PyErr_Format(PyExc_TypeError, "join() takes a Batch, got %.200s", Py_TYPE(group)->tp_name);
  }
  BatchBase& front = batch_of(group);
  if (typeid(front) != typeid(batch)) {
    PyErr_SetString(PyExc_TypeError, "join() takes what take() gave");
    return nullptr;
  }
  const Use use(batch);
  const Use use_front(front);
  if (!use.begin() || !use_front.begin()) return nullptr;
  PyObject* items = PySequence_Concat(front.items, batch.items);
  if (items == nullptr) return nullptr;
  if (!batch.join(front)) {
    Py_DECREF(items);
    return nullptr;
  }
  Py_DECREF(batch.exchange_items(items));
  Py_DECREF(front.exchange_items(nullptr));
  Py_RETURN_NONE;
}

PyObject* batch_postpone(PyObject* self, PyObject*) {
  BatchBase& batch = batch_of(self);
  if (!batch.from_this_process()) Py_RETURN_NONE;
  const Use use(batch);
  return use.begin() ? none_if(batch.postpone()) : nullptr;
}

PyObject* batch_drop_ended(PyObject* self, PyObject*) {
  BatchBase& batch = batch_of(self);
  if (!batch.from_this_process()) Py_RETURN_FALSE;
  const Use use(batch);
  if (!use.begin() || !batch.drop_ended()) return nullptr;
  return PyBool_FromLong(batch.ranges() > 0 ? 1 : 0);
}

PyObject* batch_ended_except(PyObject* self, PyObject* indices) {
  const BatchBase& batch = batch_of(self);
  std::size_t first = 0;
  for (std::size_t i = 0; i < batch.ranges(); ++i) {
    const std::size_t index = std::exchange(first, first + batch.context_of(i).items);
    if (batch.ended(i)) continue;
    PyObject* number = PyLong_FromSize_t(index);
    const int excepted = number != nullptr ? PySequence_Contains(indices, number) : -1;
    Py_XDECREF(number);
    if (excepted < 0) return nullptr;
    if (excepted == 0) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

// --- attributes ---

Py_ssize_t batch_length(PyObject* self) {
  const Locked lock(batch_of(self).guard());
  return static_cast<Py_ssize_t>(batch_of(self).size());
}

PyObject* batch_items(PyObject* self, void*) {
  PyObject* items = batch_of(self).own_items();
  PyObject* copy = items != nullptr ? PySequence_List(items) : PyList_New(0);
  Py_XDECREF(items);
  return copy;
}

PyObject* batch_requests(PyObject* self, void*) {
  return PyLong_FromSize_t(ranges_of(batch_of(self)));
}

PyObject* batch_reason(PyObject* self, void*) {
  return PyUnicode_FromString(batch_of(self).reason());
}

PyObject* batch_age(PyObject* self, void*) {
  return PyFloat_FromDouble(seconds(batch_of(self).age()));
}

PyObject* batch_contexts(PyObject* self, void*) {
  const BatchBase& batch = batch_of(self);
  PyObject* list = PyList_New(0);
  std::size_t first = 0;
  for (std::size_t i = 0; list != nullptr && i < batch.ranges(); ++i) {
    const auto [context, items, queue_time] = batch.context_of(i);
    const std::size_t index = std::exchange(first, first + items);
    if (context == nullptr) continue;
    if (!append_context(list, *context, items, queue_time, index)) Py_CLEAR(list);
  }
  return list;
}

PyObject* batch_ended(PyObject* self, void*) {
  const Locked lock(batch_of(self).guard());
  return PyBool_FromLong(batch_of(self).all_ended() ? 1 : 0);
}

// --- memory ---

// No tp_clear: a batch that is being worked on needs its items. Once it is answered it has none.
int batch_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(batch_of(self).items);
  return 0;
}

void batch_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  delete reinterpret_cast<BatchObject*>(self)->batch;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"run", run_batch, METH_O,
     "run($self, predict, /)\n--\n\n"
     "Calls the model with `items`: its outputs, with copies of arrays and tensors whose memory the model keeps, if "
     "they stay in use after its next run."},
    {"complete", batch_complete, METH_O,
     "complete($self, outputs, /)\n--\n\n"
     "Answers every request with its part of `outputs`, one for each item.\n\n"
     "Raises OutputSizeMismatch or TypeError for outputs that do not fit; no request is answered then."},
    {"fail", batch_fail, METH_O,
     "fail($self, error, /)\n--\n\n"
     "Ends every request of the batch with the exception, or a copy of it."},
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
     "Takes out the requests that are here with all their items: each runs alone, when no other request waits."},
    {"drop_ended", batch_drop_ended, METH_NOARGS,
     "drop_ended($self)\n--\n\n"
     "Takes out the requests that ended or expired meanwhile, before a part of a batch runs again; False: none is "
     "left."},
    {"ended_except", batch_ended_except, METH_O,
     "ended_except($self, indices, /)\n--\n\n"
     "Like `ended`, but requests whose first item has one of the `indices` do not count."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef attributes[] = {
    {"items", batch_items, nullptr, "The argument of predict_function: a plain list, a new one each time.", nullptr},
    {"requests", batch_requests, nullptr, "How many requests have a part in it.", nullptr},
    {"reason", batch_reason, nullptr, "Why it was closed.", nullptr},
    {"age", batch_age, nullptr, "Seconds that its oldest request had waited when it was cut.", nullptr},
    {"contexts", batch_contexts, nullptr,
     "The requests with a context: [(context, items of it in the batch, seconds in the queue, index of the first item "
     "in the batch)].",
     nullptr},
    {"ended", batch_ended, nullptr, "No caller waits for it any more: drop_ended() takes its requests out.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("What one call of the model works on. A batch dropped without complete() or fail() "
                                  "ends its requests with WorkerLost.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(batch_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(batch_traverse)},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {Py_sq_length, reinterpret_cast<void*>(batch_length)},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.Batch", sizeof(BatchObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

bool make_batch_type(PyObject* module) {
  batch_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return batch_type != nullptr && PyModule_AddType(module, batch_type) == 0;
}

PyObject* make_batch(BatchBase* batch) {
  auto* self = PyObject_GC_New(BatchObject, batch_type);
  if (self == nullptr) {
    delete batch;
    return nullptr;
  }
  self->batch = batch;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(self));
  return reinterpret_cast<PyObject*>(self);
}

PyObject* run_batch(PyObject* self, PyObject* predict) {
  PyObject* items = batch_items(self, nullptr);
  PyObject* outputs = items != nullptr ? PyObject_CallOneArg(predict, items) : nullptr;
  Py_XDECREF(items);
  const BatchBase& batch = batch_of(self);
  if (outputs == nullptr || !batch.keeps_outputs()) return outputs;
  items = batch.own_items();
  outputs = own_outputs(outputs, items);
  Py_XDECREF(items);
  return outputs;
}

bool is_traced(PyObject* self) {
  return batch_of(self).traced;
}

bool complete_batch(PyObject* self, PyObject* outputs, DeferredWake* later) {
  BatchBase& batch = batch_of(self);
  if (!batch.from_this_process()) return true;
  const Use use(batch);
  return use.begin() && batch.complete(outputs, later);
}

}  // namespace service_streamer::bindings
