#include "bindings/engine/batch.h"

#include <new>
#include <utility>

#include "bindings/engine/batch_object.h"
#include "bindings/futures/future.h"
#include "bindings/engine/distribute.h"
#include "bindings/python/errors.h"
#include "bindings/python/methods.h"

namespace service_streamer::bindings {
namespace {

using batch::BatchObject;
using batch::end;
using batch::self_of;

PyObject* batch_complete(PyObject* self, PyObject* outputs) {
  if (!complete_batch(self, Py_NewRef(outputs))) return nullptr;
  Py_RETURN_NONE;
}

PyObject* batch_fail(PyObject* object, PyObject* error) {
  BatchObject* self = self_of(object);
  if (!batch::from_this_process(self)) Py_RETURN_NONE;
  if (!batch::is_open(self)) return nullptr;
  if (!PyExceptionInstance_Check(error)) {
    PyErr_Format(PyExc_TypeError, "fail() takes an exception, got %.200s", Py_TYPE(error)->tp_name);
    return nullptr;
  }
  // Raising an exception changes it, and callers raise theirs in their own threads: each gets a copy.
  PyObject* copies = PyList_New(0);
  bool copied = copies != nullptr && PyList_Append(copies, error) == 0;
  for (std::size_t i = 1; copied && i < self->batch.parts.size(); ++i) {
    PyObject* copy = call_helper("service_streamer._worker", "copy_error", error);
    copied = copy != nullptr && PyList_Append(copies, copy) == 0;
    Py_XDECREF(copy);
  }
  if (!copied) PyErr_Clear();  // no memory for copies: all get the same
  for (std::size_t i = 0; i < self->batch.parts.size(); ++i) {
    PyObject* own = copied ? PyList_GET_ITEM(copies, static_cast<Py_ssize_t>(i)) : error;
    Py_XSETREF(future_of(*self->batch.parts[i].request)->outputs, Py_NewRef(own));
  }
  Py_XDECREF(copies);
  end(self, Outcome::kFailed);
  Py_RETURN_NONE;
}

Py_ssize_t batch_length(PyObject* self) {
  return static_cast<Py_ssize_t>(self_of(self)->batch.items);
}

PyObject* batch_items(PyObject* self, void*) {
  return items_of_batch(self);
}

PyObject* batch_requests(PyObject* self, void*) {
  return PyLong_FromSize_t(self_of(self)->batch.parts.size());
}

PyObject* batch_reason(PyObject* self, void*) {
  return PyUnicode_FromString(to_string(self_of(self)->batch.reason));
}

PyObject* batch_age(PyObject* self, void*) {
  return PyFloat_FromDouble(std::chrono::duration<double>(self_of(self)->batch.age).count());
}

PyObject* batch_new(PyTypeObject*, PyObject*, PyObject*) {
  PyErr_SetString(PyExc_TypeError, "batches are made by run_batches()");
  return nullptr;
}

// No tp_clear: the engine and the items of a batch that is being worked on must stay. Cycles through one cannot arise
// before it is completed, when it holds nothing but the engine.
int batch_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<PyObject*>(self_of(self)->engine));
  Py_VISIT(self_of(self)->items);
  return 0;
}

void batch_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  BatchObject* self = self_of(object);
  if (!self->batch.parts.empty() && batch::from_this_process(self)) end(self, Outcome::kLost);
  Py_CLEAR(self->items);
  Py_CLEAR(self->engine);
  self->batch.~Batch();
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
     "Ends every request of the batch with the exception, or a copy of it."},
    {"isolate", batch::isolate, METH_O,
     "isolate($self, budget, /)\n--\n\n"
     "Begins the search for the guilty requests after the batch raised: an Isolation.\n\n"
     "`budget`: its time, in multiples of what the batch took."},
    {"take", batch::take, METH_O,
     "take($self, isolation, /)\n--\n\n"
     "Takes out of the batch what runs next: another batch, or this one if that is all of it."},
    {"join", batch::join, METH_O,
     "join($self, group, /)\n--\n\n"
     "Puts back what take() gave."},
    {"postpone", batch::postpone, METH_NOARGS,
     "postpone($self)\n--\n\n"
     "Takes the requests out of which all items are here: each will run alone, when nothing else waits."},
    {"drop_ended", batch::drop_ended, METH_NOARGS,
     "drop_ended($self)\n--\n\n"
     "Takes out what ended or expired meanwhile, before a piece of a batch runs again; False: nothing is left."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef attributes[] = {
    {"items", batch_items, nullptr, "What predict_function gets: a plain list, a new one each time.", nullptr},
    {"requests", batch_requests, nullptr, "How many requests have a part in it.", nullptr},
    {"reason", batch_reason, nullptr, "Why it was closed.", nullptr},
    {"age", batch_age, nullptr, "Seconds that its oldest request had waited when it was cut.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("What one call of the model works on. A batch dropped without complete() or fail() "
                                  "ends its requests with WorkerLost.")},
    {Py_tp_new, reinterpret_cast<void*>(batch_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(batch_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(batch_traverse)},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {Py_sq_length, reinterpret_cast<void*>(batch_length)},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.Batch", sizeof(BatchObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                    slots};

}  // namespace

PyTypeObject* batch::type = nullptr;

BatchObject* batch::make(EngineObject* engine) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  BatchObject* made = self_of(self);
  new (&made->batch) Batch;
  made->engine = reinterpret_cast<EngineObject*>(Py_NewRef(reinterpret_cast<PyObject*>(engine)));
  return made;
}

void batch::end(BatchObject* self, Outcome outcome) {
  EndedRequests ended;
  ReleasedRequests released;
  self->engine->engine->complete(self->batch, outcome, ended, released);
  for (Request* request = ended.first; request != nullptr; request = request->next_ended) {
    FutureObject* future = future_of(*request);
    if (request->outcome == Outcome::kFailed) {
      std::swap(future->exception, future->outputs);
    } else if (request->outcome == Outcome::kAnswered) {
      finish_value(future, self->engine->output_batch);
    }
  }
  self->engine->backend->publish(ended);
  self->engine->backend->let_go(released);
  Py_CLEAR(self->items);
}

bool make_batch_type(PyObject* module) {
  batch::type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return batch::type != nullptr && PyModule_AddType(module, batch::type) == 0;
}

PyObject* make_batch(EngineObject* engine) {
  return reinterpret_cast<PyObject*>(batch::make(engine));
}

Cut cut_batch(PyObject* object, CloseReason reason) {
  BatchObject* self = self_of(object);
  EndedRequests expired;
  bool any = false;
  if (attempt([&] { any = self->engine->engine->cut(self->batch, reason, expired); }).raise()) return Cut::kError;
  if (any) {
    self->items = PyTuple_New(static_cast<Py_ssize_t>(self->batch.items));
    Py_ssize_t next = 0;
    for (const RequestRange& part : self->batch.parts) {
      if (self->items == nullptr) break;
      const FutureObject* future = future_of(*part.request);
      PyObject** items = PySequence_Fast_ITEMS(future->items != nullptr ? future->items : future->value);
      for (std::uint32_t i = part.begin; i < part.begin + part.count; ++i) {
        PyTuple_SET_ITEM(self->items, next++, Py_NewRef(items[i]));
      }
    }
  }
  self->engine->backend->publish(expired);
  if (!any) return Cut::kNothing;
  return self->items != nullptr ? Cut::kBatch : Cut::kError;
}

PyObject* items_of_batch(PyObject* self) {
  PyObject* items = self_of(self)->items;
  return items != nullptr ? PySequence_List(items) : PyList_New(0);
}

bool complete_batch(PyObject* object, PyObject* outputs) {
  BatchObject* self = self_of(object);
  const bool ours = batch::from_this_process(self);
  const bool done = !ours || (batch::is_open(self) && distribute(outputs, self->batch, self->engine->output_batch));
  if (ours && done) end(self, Outcome::kAnswered);
  Py_DECREF(outputs);
  return done;
}

}  // namespace service_streamer::bindings
