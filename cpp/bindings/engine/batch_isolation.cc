#include "bindings/engine/batch_object.h"
#include "bindings/batches/isolation.h"
#include "bindings/python/errors.h"

// What a batch that raised is asked for by service_streamer._worker.isolate.

namespace service_streamer::bindings::batch {
namespace {

// Takes the parts out that the engine dropped, and their items.
void keep_items(BatchObject* self) {
  PyObject* kept = PyTuple_New(static_cast<Py_ssize_t>(self->batch.items));
  Py_ssize_t from = 0;
  Py_ssize_t to = 0;
  for (const RequestRange& part : self->batch.parts) {
    for (std::uint32_t i = 0; i < part.count; ++i, ++from) {
      if (kept != nullptr && part.request != nullptr)
        PyTuple_SET_ITEM(kept, to++, Py_NewRef(PyTuple_GET_ITEM(self->items, from)));
    }
  }
  std::erase_if(self->batch.parts, [](const RequestRange& part) { return part.request == nullptr; });
  Py_SETREF(self->items, kept);
}

}  // namespace

PyObject* isolate(PyObject* object, PyObject* budget) {
  const Batch& batch = self_of(object)->batch;
  const double multiple = PyFloat_AsDouble(budget);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return make_isolation(
      {.requests = batch.parts.size(), .items = batch.items, .begin = batch.dispatched, .end = Clock::now()}, multiple);
}

PyObject* take(PyObject* object, PyObject* chooser) {
  BatchObject* self = self_of(object);
  if (!from_this_process(self)) Py_RETURN_NONE;
  Isolation* isolation = isolation_of(chooser);
  if (isolation == nullptr || !is_open(self)) return nullptr;
  const BatchCut cut = isolation->next(self->batch.parts);
  if (cut.items == self->batch.items) return Py_NewRef(object);
  BatchObject* first = make(self->engine);
  if (first == nullptr) return nullptr;
  const auto items = static_cast<Py_ssize_t>(cut.items);
  PyObject* rest = PyTuple_GetSlice(self->items, items, PyTuple_GET_SIZE(self->items));
  first->items = rest != nullptr ? PyTuple_GetSlice(self->items, 0, items) : nullptr;
  PyObject* taken = reinterpret_cast<PyObject*>(first);
  const auto split = [&] { self->engine->engine->split(self->batch, cut, first->batch); };
  if (first->items == nullptr || attempt(split).raise()) {
    Py_XDECREF(rest);
    Py_DECREF(taken);
    return nullptr;
  }
  Py_SETREF(self->items, rest);
  return taken;
}

PyObject* join(PyObject* object, PyObject* group) {
  BatchObject* self = self_of(object);
  if (group == object || !from_this_process(self)) Py_RETURN_NONE;
  if (!PyObject_TypeCheck(group, type)) {
    PyErr_Format(PyExc_TypeError, "join() takes a Batch, got %.200s", Py_TYPE(group)->tp_name);
    return nullptr;
  }
  BatchObject* first = self_of(group);
  if (!is_open(self) || !is_open(first)) return nullptr;
  PyObject* items = PySequence_Concat(first->items, self->items);
  if (items == nullptr) return nullptr;
  const CaughtError failure = attempt([&] { self->engine->engine->join(self->batch, first->batch); });
  if (failure.raise()) {
    Py_DECREF(items);
    return nullptr;
  }
  Py_SETREF(self->items, items);
  Py_CLEAR(first->items);
  Py_RETURN_NONE;
}

PyObject* postpone(PyObject* object, PyObject*) {
  BatchObject* self = self_of(object);
  if (!from_this_process(self)) Py_RETURN_NONE;
  if (!is_open(self)) return nullptr;
  EndedRequests ended;
  ReleasedRequests released;
  self->engine->engine->postpone(self->batch, ended, released);
  keep_items(self);
  self->engine->backend->publish(ended);
  self->engine->backend->let_go(released);
  if (self->items == nullptr) return nullptr;
  if (self->batch.parts.empty()) end(self, Outcome::kAnswered);
  Py_RETURN_NONE;
}

PyObject* drop_ended(PyObject* object, PyObject*) {
  BatchObject* self = self_of(object);
  if (!from_this_process(self)) Py_RETURN_FALSE;
  if (!is_open(self)) return nullptr;
  const Py_ssize_t before = static_cast<Py_ssize_t>(self->batch.items);
  EndedRequests ended;
  ReleasedRequests released;
  self->engine->engine->drop_ended(self->batch, ended, released);
  if (static_cast<Py_ssize_t>(self->batch.items) != before) keep_items(self);
  self->engine->backend->publish(ended);
  self->engine->backend->let_go(released);
  if (self->items == nullptr) return nullptr;
  if (!self->batch.parts.empty()) Py_RETURN_TRUE;
  end(self, Outcome::kAnswered);
  Py_RETURN_FALSE;
}

}  // namespace service_streamer::bindings::batch
