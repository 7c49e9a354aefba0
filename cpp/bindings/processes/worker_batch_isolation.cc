#include <algorithm>
#include <utility>
#include <vector>

#include "bindings/batches/isolation.h"
#include "bindings/processes/worker_batch_object.h"
#include "service_streamer/batching/batch_cut.h"

// What a batch that raised is asked for by service_streamer._worker.isolate.

namespace service_streamer::bindings::worker_batch {
namespace {

// Takes the shares out that have a result, and their items.
bool keep_open(WorkerBatchObject* self) {
  std::vector<ItemRange>& shares = self->shares;
  Py_ssize_t end = PyList_GET_SIZE(self->items);
  for (auto share = shares.rbegin(); share != shares.rend(); ++share) {
    const Py_ssize_t begin = end - static_cast<Py_ssize_t>(share->count);
    if (!self->received->is_open(*share) && PyList_SetSlice(self->items, begin, end, nullptr) < 0) return false;
    end = begin;
  }
  std::erase_if(shares, [&](const ItemRange& share) { return !self->received->is_open(share); });
  return true;
}

// The same with those whose time is over.
bool take_out_ended(WorkerBatchObject* self) {
  const TimePoint now = Clock::now();
  for (const ItemRange& share : self->shares) {
    if (!self->received->is_open(share) || self->received->message.parts[share.part].deadline > now) continue;
    PyObject* error = call_helper("service_streamer._pickle", "expired", nullptr);
    const bool added = error != nullptr && self->received->add_error(share, error);
    Py_XDECREF(error);
    if (!added) return false;
  }
  return keep_open(self) && (!self->shares.empty() || close(self));
}

// The same with those that are to run alone later.
bool postpone_whole(WorkerBatchObject* self) {
  for (const ItemRange& share : self->shares) {
    if (self->received->is_whole(share) && !self->received->postpone(share)) return false;
  }
  return keep_open(self) && (!self->shares.empty() || close(self));
}

}  // namespace

PyObject* isolate(PyObject* object, PyObject* budget) {
  const WorkerBatchObject* self = self_of(object);
  const double multiple = PyFloat_AsDouble(budget);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return make_isolation({.requests = self->shares.size(),
                         .items = count_items(self->shares),
                         .begin = self->received->mark(),
                         .end = Clock::now()},
                        multiple);
}

PyObject* take(PyObject* object, PyObject* chooser) {
  WorkerBatchObject* self = self_of(object);
  if (!is_open(self)) return none_unless_error();
  Isolation* isolation = isolation_of(chooser);
  if (isolation == nullptr) return nullptr;
  const BatchCut cut = isolation->next(self->shares);
  const auto items = static_cast<Py_ssize_t>(cut.items);
  if (items == PyList_GET_SIZE(self->items)) return Py_NewRef(object);
  ++self->received->references;
  WorkerBatchObject* first = make(self->received);
  if (first == nullptr) return nullptr;
  PyObject* taken = reinterpret_cast<PyObject*>(first);
  std::vector<ItemRange> before;
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

PyObject* join(PyObject* object, PyObject* group) {
  WorkerBatchObject* self = self_of(object);
  if (group == object) Py_RETURN_NONE;
  if (!PyObject_TypeCheck(group, type)) {
    PyErr_Format(PyExc_TypeError, "join() takes a WorkerBatch, got %.200s", Py_TYPE(group)->tp_name);
    return nullptr;
  }
  WorkerBatchObject* first = self_of(group);
  if (!is_open(self) || !is_open(first)) return none_unless_error();
  const auto put_back = [&] {
    self->shares.reserve(self->shares.size() + first->shares.size());
    if (PyList_SetSlice(self->items, 0, 0, first->items) < 0) return false;
    put_before(self->shares, first->shares, [](const ItemRange&) {});
    first->shares.clear();
    return true;
  };
  if (!run(put_back)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* postpone(PyObject* object, PyObject*) {
  WorkerBatchObject* self = self_of(object);
  if (!is_open(self)) return none_unless_error();
  if (!run([&] { return postpone_whole(self); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* drop_ended(PyObject* object, PyObject*) {
  WorkerBatchObject* self = self_of(object);
  if (!is_open(self)) return PyErr_Occurred() != nullptr ? nullptr : Py_NewRef(Py_False);
  if (!run([&] { return take_out_ended(self); })) return nullptr;
  return PyBool_FromLong(self->shares.empty() ? 0 : 1);
}

}  // namespace service_streamer::bindings::worker_batch
