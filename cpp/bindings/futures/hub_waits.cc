#include "bindings/futures/hub_waits.h"

#include <structmember.h>

#include <cstddef>

#include "bindings/futures/greenlets.h"
#include "bindings/python/name.h"

namespace service_streamer::bindings {

PyTypeObject* wait_type = nullptr;

namespace {

PyTypeObject* hub_waits_type = nullptr;
Name key_of_waits{"service_streamer.HubWaits"};
Name ref_name{"ref"};
Name switch_name{"switch"};

// --- Wait ---

void wait_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef wait_methods[] = {
    {"switch", wait_switch, METH_NOARGS,
     "switch($self)\n--\n\n"
     "Switches to the greenlet, if it still waits. To be called in its hub."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot wait_slots[] = {
    {Py_tp_doc, const_cast<char*>("One greenlet that waits for a request.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(wait_dealloc)},
    {Py_tp_methods, wait_methods},
    {0, nullptr},
};

PyType_Spec wait_spec = {"service_streamer._core.Wait", sizeof(WaitObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, wait_slots};

// --- HubWaits ---

PyObject* hub_waits_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *hub, *mailbox, *watcher, *get_hub, *get_current;
  if (!PyArg_ParseTuple(args, "OOOOO", &hub, &mailbox, &watcher, &get_hub, &get_current)) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  HubWaitsObject* waits = waits_of(self);
  waits->hub = Py_NewRef(hub);
  waits->mailbox = Py_NewRef(mailbox);
  waits->watcher = Py_NewRef(watcher);
  waits->get_hub = Py_NewRef(get_hub);
  waits->get_current = Py_NewRef(get_current);
  return self;
}

PyObject* hub_waits_of_this_thread(PyObject*, PyObject*) {
  PyObject* waits = waits_of_thread();
  if (waits == nullptr && PyErr_Occurred() != nullptr) return nullptr;
  return Py_NewRef(waits != nullptr ? waits : Py_None);
}

PyObject* hub_waits_forget(PyObject*, PyObject*) {
  return keep(Py_None) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* hub_waits_waiting(PyObject* self, void*) {
  PyObject* list = PyList_New(0);
  for (WaitObject* wait = waits_of(self)->first; list != nullptr && wait != nullptr; wait = wait->next) {
    if (PyList_Append(list, reinterpret_cast<PyObject*>(wait)) < 0) Py_CLEAR(list);
  }
  return list;
}

void hub_waits_dealloc(PyObject* self) {
  HubWaitsObject* waits = waits_of(self);
  Py_CLEAR(waits->hub);
  Py_CLEAR(waits->mailbox);
  Py_CLEAR(waits->watcher);
  Py_CLEAR(waits->get_hub);
  Py_CLEAR(waits->get_current);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef hub_waits_methods[] = {
    {"of_this_thread", hub_waits_of_this_thread, METH_NOARGS | METH_STATIC,
     "of_this_thread()\n--\n\n"
     "The HubWaits that this thread used last, or None."},
    {"forget", hub_waits_forget, METH_NOARGS | METH_STATIC,
     "forget()\n--\n\n"
     "Drops the HubWaits of this thread."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef hub_waits_members[] = {
    {"hub", T_OBJECT, offsetof(HubWaitsObject, hub), READONLY, nullptr},
    {"mailbox", T_OBJECT, offsetof(HubWaitsObject, mailbox), READONLY, nullptr},
    {"watcher", T_OBJECT, offsetof(HubWaitsObject, watcher), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef hub_waits_attributes[] = {
    {"waiting", hub_waits_waiting, nullptr, "The Wait objects of all greenlets that wait.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot hub_waits_slots[] = {
    {Py_tp_doc, const_cast<char*>("The greenlets of one hub that wait for requests.")},
    {Py_tp_new, reinterpret_cast<void*>(hub_waits_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(hub_waits_dealloc)},
    {Py_tp_methods, hub_waits_methods},
    {Py_tp_members, hub_waits_members},
    {Py_tp_getset, hub_waits_attributes},
    {0, nullptr},
};

PyType_Spec hub_waits_spec = {"service_streamer._core.HubWaits", sizeof(HubWaitsObject), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, hub_waits_slots};

}  // namespace

bool make_greenlet_types(PyObject* module) {
  wait_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&wait_spec));
  hub_waits_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&hub_waits_spec));
  return wait_type != nullptr && hub_waits_type != nullptr && PyModule_AddType(module, wait_type) == 0 &&
         PyModule_AddType(module, hub_waits_type) == 0;
}

// Whether the loop of the hub stays alive for the watcher.
static bool set_ref(HubWaitsObject* waits, PyObject* alive) {
  return PyObject_SetAttr(waits->watcher, ref_name, alive) == 0;
}

bool enter(HubWaitsObject* waits, WaitObject* wait, PyObject* greenlet) {
  if (waits->first == nullptr && !set_ref(waits, Py_True)) return false;
  wait->greenlet = Py_NewRef(greenlet);
  wait->waits = waits_of(Py_NewRef(reinterpret_cast<PyObject*>(waits)));
  wait->next = waits->first;
  if (wait->next != nullptr) wait->next->previous = wait;
  waits->first = wait;
  return true;
}

void leave(WaitObject* wait) {
  HubWaitsObject* waits = wait->waits;
  (wait->previous != nullptr ? wait->previous->next : waits->first) = wait->next;
  if (wait->next != nullptr) wait->next->previous = wait->previous;
  wait->previous = wait->next = nullptr;
  wait->waits = nullptr;
  Py_CLEAR(wait->greenlet);
  if (waits->first == nullptr && !set_ref(waits, Py_False)) {
    PyErr_WriteUnraisable(waits->watcher);
  }
  Py_DECREF(reinterpret_cast<PyObject*>(waits));
}

PyObject* switch_to(PyObject* object) {
  return PyObject_CallMethodNoArgs(object, switch_name);
}

PyObject* wait_switch(PyObject* self, PyObject*) {
  PyObject* greenlet = wait_of(self)->greenlet;
  if (greenlet == nullptr) Py_RETURN_NONE;
  Py_INCREF(greenlet);
  PyObject* value = switch_to(greenlet);
  Py_DECREF(greenlet);
  return value;
}

PyObject* waits_of_thread() {
  PyObject* kept = PyThreadState_GetDict();
  PyObject* waits = kept != nullptr ? PyDict_GetItemWithError(kept, key_of_waits) : nullptr;
  return waits != Py_None ? waits : nullptr;
}

bool keep(PyObject* waits) {
  PyObject* kept = PyThreadState_GetDict();
  if (kept == nullptr) PyErr_NoMemory();
  return kept != nullptr && PyDict_SetItem(kept, key_of_waits, waits) == 0;
}

}  // namespace service_streamer::bindings
