#include "bindings/broker/leases.h"

#include <cstdint>

#include "bindings/broker/broker_bodies.h"
#include "bindings/broker/broker_ingress.h"
#include "bindings/python/errors.h"
#include "bindings/python/methods.h"

namespace service_streamer::bindings {
namespace {

using ipc::LeasedEntries;

// --- entries ---

PyObject* leases_ids(PyObject* self, PyObject*) {
  std::vector<std::string> ids;
  if (attempt([&] { ids = locked(self, [&] { return leases_of(self)->entries->ids(); }); }).raise()) return nullptr;
  return bytes_list(ids);
}

// Calls a function for each of a list of ids, until one is false.
template <typename Function>
bool for_each_id(PyObject* ids, Function function) {
  if (!PyList_Check(ids)) {
    PyErr_Format(PyExc_TypeError, "a list of ids of entries is wanted, got %.200s", Py_TYPE(ids)->tp_name);
    return false;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(ids); ++i) {
    PyObject* id = PyList_GET_ITEM(ids, i);
    if (!PyBytes_Check(id)) {
      PyErr_Format(PyExc_TypeError, "the id of an entry must be bytes, got %.200s", Py_TYPE(id)->tp_name);
      return false;
    }
    if (!function(id)) return false;
  }
  return true;
}

PyObject* leases_here(PyObject* self, PyObject* ids) {
  PyObject* list = PyList_New(0);
  const LeasedEntries& held = *leases_of(self)->entries;
  const bool whole = list != nullptr && for_each_id(ids, [&](PyObject* id) {
                       return !locked(self, [&] { return held.contains(text_of(id)); }) || PyList_Append(list, id) == 0;
                     });
  if (!whole) Py_CLEAR(list);
  return list;
}

PyObject* leases_remove(PyObject* self, PyObject* ids) {
  PyObject* numbers = PyList_New(0);
  LeasedEntries& held = *leases_of(self)->entries;
  bool whole = numbers != nullptr && for_each_id(ids, [&](PyObject* id) {
                 const std::uint64_t number = locked(self, [&] { return held.remove(text_of(id)); });
                 return number == 0 || append(numbers, PyLong_FromUnsignedLongLong(number));
               });
  if (whole && PyList_GET_SIZE(numbers) > 0) whole = ring(leases_of(self));
  if (!whole) Py_CLEAR(numbers);
  return numbers;
}

PyObject* leases_unanswered_items(PyObject* self, PyObject* suffix) {
  if (!PyBytes_Check(suffix)) {
    return PyErr_Format(PyExc_TypeError, "the suffix of a stream must be bytes, got %.200s", Py_TYPE(suffix)->tp_name);
  }
  return PyLong_FromUnsignedLongLong(
      locked(self, [&] { return leases_of(self)->entries->unanswered_items(text_of(suffix)); }));
}

Py_ssize_t leases_length(PyObject* self) {
  return static_cast<Py_ssize_t>(locked(self, [&] { return leases_of(self)->entries->size(); }));
}

// --- life ---

PyObject* leases_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject *ingress, *ring;
  static const char* names[] = {"ingress", "ring", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O", const_cast<char**>(names), broker_ingress_type, &ingress,
                                   &ring)) {
    return nullptr;
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  leases_of(self)->ingress = Py_NewRef(ingress);
  leases_of(self)->ring = Py_NewRef(ring);
  if (attempt([&] { leases_of(self)->entries = new LeasedEntries; }).raise()) Py_CLEAR(self);
  return self;
}

int leases_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(leases_of(self)->ingress);
  Py_VISIT(leases_of(self)->ring);
  return 0;
}

int leases_clear(PyObject* self) {
  Py_CLEAR(leases_of(self)->ring);
  return 0;
}

void leases_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  LeasesObject* self = leases_of(object);
  delete self->entries;
  Py_CLEAR(self->ingress);
  Py_CLEAR(self->ring);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

constexpr int kWithNames = METH_VARARGS | METH_KEYWORDS;

PyMethodDef methods[] = {
    {"take_in", as_method(leases_take_in), kWithNames,
     "take_in($self, entries, ahead, now, oldest_sent)\n--\n\n"
     "Brings the requests of [[id, [b\"m\", message]]] into the engine that are not here yet: (how many were taken, "
     "their items, odd entries, refused entries).\n\n"
     "Odd are entries without a sound message of a request in this version, or whose deadline is before `now`, or that "
     "were sent before `oldest_sent`: in ms on the broker's clock, which is `ahead` of time.monotonic(). Refused are "
     "(entry, why): their body is not what its head says. What a closed engine does not take is left out, and not "
     "here."},
    {"answer", as_method(leases_answer), kWithNames,
     "answer($self, ended, limit, most)\n--\n\n"
     "Takes the first of [(number, body)] of BrokerIngress.take(): (messages, ids, others, how many it took).\n\n"
     "Messages are the replies, (client, message), one for each client, and ids the entries that they answer: with "
     "about "
     "`most` bytes, unless one alone has more. Others are ((id, client, request, begin, items, deadline), body): "
     "without "
     "a body, or with more bytes than `limit`, or it only says that no worker could load its model. They count as "
     "answered; what is not here is left out."},
    {"ids", leases_ids, METH_NOARGS, "ids($self)\n--\n\nAll that are here."},
    {"here", leases_here, METH_O, "here($self, ids, /)\n--\n\nThose of some that are here."},
    {"remove", leases_remove, METH_O,
     "remove($self, ids, /)\n--\n\nLets entries go; returns the numbers that they had."},
    {"unanswered_items", leases_unanswered_items, METH_O,
     "unanswered_items($self, suffix, /)\n--\n\nThe items of one stream that a model still has to see."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("The entries of a broker's queue that are here: from their arrival until they are "
                                  "acknowledged. Calls `ring()` when it gets fewer.")},
    {Py_tp_new, reinterpret_cast<void*>(leases_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(leases_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(leases_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(leases_clear)},
    {Py_tp_methods, methods},
    {Py_sq_length, reinterpret_cast<void*>(leases_length)},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.Leases", sizeof(LeasesObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                    slots};

}  // namespace

bool ring(LeasesObject* self) {
  PyObject* rung = PyObject_CallNoArgs(self->ring);
  Py_XDECREF(rung);
  return rung != nullptr;
}

PyObject* bytes_list(const std::vector<std::string>& texts) {
  PyObject* list = PyList_New(0);
  for (std::size_t i = 0; list != nullptr && i < texts.size(); ++i) {
    if (!append(list, bytes_of(texts[i]))) Py_CLEAR(list);
  }
  return list;
}

bool make_leases_type(PyObject* module) {
  return add_type(module, spec);
}

}  // namespace service_streamer::bindings
