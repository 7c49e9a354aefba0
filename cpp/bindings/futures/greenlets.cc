#include "bindings/futures/greenlets.h"

#include <structmember.h>

#include <cstddef>

#include "bindings/futures/callbacks.h"
#include "bindings/python/errors.h"

namespace service_streamer::bindings {
namespace {

struct WaitObject;

// The greenlets of one hub that wait for requests.
struct HubWaitsObject {
  PyObject_HEAD
  PyObject* hub;
  PyObject* mailbox;      // of those whose request has ended
  PyObject* watcher;      // calls mailbox.resume(); has a reference of the loop only while somebody waits
  PyObject* get_hub;      // gevent's get_hub_if_exists
  PyObject* get_current;  // greenlet.getcurrent
  WaitObject* first;      // borrowed, the latest first
};

// One greenlet in wait_in_greenlet(), and the token that is mailed to end it.
struct WaitObject {
  PyObject_HEAD
  PyObject* greenlet;  // nullptr: waits no longer
  HubWaitsObject* waits;
  WaitObject* previous;
  WaitObject* next;
};

PyTypeObject* hub_waits_type = nullptr;
PyTypeObject* wait_type = nullptr;
PyObject* key_of_waits = nullptr;
PyObject* name_of_parent = nullptr;
PyObject* name_of_ref = nullptr;
PyObject* name_of_switch = nullptr;

WaitObject* wait_of(PyObject* self) {
  return reinterpret_cast<WaitObject*>(self);
}

HubWaitsObject* waits_of(PyObject* self) {
  return reinterpret_cast<HubWaitsObject*>(self);
}

// --- a wait ---

// Its greenlet waits from here to leave().
bool enter(HubWaitsObject* waits, WaitObject* wait, PyObject* greenlet) {
  if (waits->first == nullptr && PyObject_SetAttr(waits->watcher, name_of_ref, Py_True) < 0) return false;
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
  if (waits->first == nullptr && PyObject_SetAttr(waits->watcher, name_of_ref, Py_False) < 0) {
    PyErr_WriteUnraisable(waits->watcher);
  }
  Py_DECREF(reinterpret_cast<PyObject*>(waits));
}

PyObject* wait_switch(PyObject* self, PyObject*) {
  PyObject* greenlet = wait_of(self)->greenlet;
  if (greenlet == nullptr) Py_RETURN_NONE;
  Py_INCREF(greenlet);
  PyObject* value = PyObject_CallMethodNoArgs(greenlet, name_of_switch);
  Py_DECREF(greenlet);
  return value;
}

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

// --- the waits of a hub ---

// The last that this thread had, which keeps them; borrowed, or nullptr.
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

// Whether the greenlet switches to that hub, which may not be the thread's any more. gevent need not be asked where the greenlet is a child
// of it, as nearly all are: such a one could not go on without it. May set an exception.
bool is_hub_of(PyObject* greenlet, HubWaitsObject* waits) {
  PyObject* parent = PyObject_GetAttr(greenlet, name_of_parent);
  Py_XDECREF(parent);
  if (parent == waits->hub) return true;
  PyObject* hub = parent != nullptr ? PyObject_CallNoArgs(waits->get_hub) : nullptr;
  Py_XDECREF(hub);  // the thread keeps it
  return hub == waits->hub;
}

// Those of the hub to which this thread's greenlet can switch, or None, a new reference; nullptr: an exception.
PyObject* find_waits(PyObject*& greenlet) {
  PyObject* waits = Py_XNewRef(waits_of_thread());
  if (waits != nullptr) {
    greenlet = PyObject_CallNoArgs(waits_of(waits)->get_current);
    if (greenlet != nullptr && is_hub_of(greenlet, waits_of(waits))) return waits;
    Py_CLEAR(greenlet);
    Py_DECREF(waits);
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  waits = call_helper("service_streamer._gevent", "open_waits", nullptr);
  if (waits == nullptr || waits == Py_None) return waits;
  greenlet = keep(waits) ? PyObject_CallNoArgs(waits_of(waits)->get_current) : nullptr;
  if (greenlet == nullptr) Py_CLEAR(waits);
  return waits;
}

// Switches to the hub until somebody switches back; false with the exception that came instead.
bool switch_to_hub(HubWaitsObject* waits) {
  PyObject* back = PyObject_CallMethodNoArgs(waits->hub, name_of_switch);
  Py_XDECREF(back);
  return back != nullptr;
}

// The same for `seconds` at most.
bool switch_to_hub_for(HubWaitsObject* waits, PyObject* wait, PyObject* seconds) {
  PyObject* timer = PyObject_CallMethod(reinterpret_cast<PyObject*>(waits), "start_timer", "OO", seconds, wait);
  if (timer == nullptr) return false;
  const bool back = switch_to_hub(waits);
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyObject* none = PyObject_CallMethod(reinterpret_cast<PyObject*>(waits), "stop_timer", "O", timer);
  if (none == nullptr) PyErr_WriteUnraisable(timer);
  Py_XDECREF(none);
  Py_DECREF(timer);
  PyErr_Restore(type, error, traceback);
  return back;
}

// Waits as the greenlet until somebody switches back; false with the exception that came instead.
bool wait_as(PyObject* greenlet, HubWaitsObject* waits, FutureObject* future, PyObject* seconds) {
  PyObject* wait = wait_type->tp_alloc(wait_type, 0);
  if (wait == nullptr) return false;
  bool back = enter(waits, wait_of(wait), greenlet);
  if (back) {
    if (attach(future, waits->mailbox, wait)) {
      back = seconds == Py_None ? switch_to_hub(waits) : switch_to_hub_for(waits, wait, seconds);
    } else {
      back = PyErr_Occurred() == nullptr;  // it has ended
    }
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    leave(wait_of(wait));
    PyErr_Restore(type, error, traceback);
  }
  Py_DECREF(wait);
  return back;
}

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
     "Those that this thread used last, or None."},
    {"forget", hub_waits_forget, METH_NOARGS | METH_STATIC,
     "forget()\n--\n\n"
     "This thread has none any more."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef hub_waits_members[] = {
    {"hub", T_OBJECT, offsetof(HubWaitsObject, hub), READONLY, nullptr},
    {"mailbox", T_OBJECT, offsetof(HubWaitsObject, mailbox), READONLY, nullptr},
    {"watcher", T_OBJECT, offsetof(HubWaitsObject, watcher), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef hub_waits_attributes[] = {
    {"waiting", hub_waits_waiting, nullptr, "The waits of all greenlets that are in one.", nullptr},
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
  key_of_waits = PyUnicode_InternFromString("service_streamer.HubWaits");
  name_of_parent = PyUnicode_InternFromString("parent");
  name_of_ref = PyUnicode_InternFromString("ref");
  name_of_switch = PyUnicode_InternFromString("switch");
  return wait_type != nullptr && hub_waits_type != nullptr && key_of_waits != nullptr && name_of_parent != nullptr &&
         name_of_ref != nullptr && name_of_switch != nullptr && PyModule_AddType(module, wait_type) == 0 &&
         PyModule_AddType(module, hub_waits_type) == 0;
}

int wait_in_greenlet(FutureObject* future, PyObject* seconds) {
  PyObject* greenlet = nullptr;
  PyObject* waits = find_waits(greenlet);
  if (waits == nullptr) return -1;
  int waited = 0;
  if (greenlet != nullptr && greenlet != waits_of(waits)->hub) {
    waited = wait_as(greenlet, waits_of(waits), future, seconds) ? 1 : -1;
  }
  Py_XDECREF(greenlet);
  Py_DECREF(waits);
  return waited;
}

void resume(PyObject* token) {
  if (Py_TYPE(token) != wait_type || wait_of(token)->greenlet == nullptr) return;
  PyObject* hub = Py_NewRef(wait_of(token)->waits->hub);
  PyObject* value = wait_switch(token, nullptr);
  if (value == nullptr) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    value = PyObject_CallMethod(hub, "handle_error", "OOOO", token, type, error,
                                traceback != nullptr ? traceback : Py_None);
    if (value == nullptr) PyErr_WriteUnraisable(token);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
  }
  Py_XDECREF(value);
  Py_DECREF(hub);
}

}  // namespace service_streamer::bindings
