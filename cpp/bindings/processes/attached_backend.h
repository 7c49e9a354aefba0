#pragma once

#include <Python.h>

#include <utility>

#include "bindings/futures/engine_object.h"
#include "bindings/python/fork.h"
#include "bindings/python/free_threading.h"

namespace service_streamer::bindings {

// For the Python types Server, ClientLink and BrokerEgress. Each `Object` has two members: `engine`, a reference, and
// `backend`, which the object owns. The engine uses that back end for as long as the object lives.

// A new object. `make(self)` sets self.backend and returns a CaughtError. nullptr with an exception set.
template <typename Object, typename Make>
PyObject* attached_new(PyTypeObject* type, EngineObject* engine, Make make) {
  PyObject* object = type->tp_alloc(type, 0);
  if (object == nullptr) return nullptr;
  auto& self = *reinterpret_cast<Object*>(object);
  self.engine = reinterpret_cast<EngineObject*>(Py_NewRef(reinterpret_cast<PyObject*>(engine)));
  if (make(self).raise()) {
    Py_DECREF(object);
    return nullptr;
  }
  engine->backend = self.backend;
  return object;
}

template <typename Object>
int attached_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(reinterpret_cast<PyObject*>(reinterpret_cast<Object*>(object)->engine));
  return 0;
}

// Deleting the back end stops it: its threads never take the GIL. A forked child leaks its copy.
template <typename Object>
void detach(Object& self) {
  if (self.backend == nullptr) return;
  self.engine->backend = self.engine->own_backend;
  if (self.engine->fork_generation != fork_generation()) return;
  if constexpr (kHasGil) {
    delete self.backend;
  } else {
    self.backend->retire();
    const Locked lock(self.engine);
    self.backend->next_retired = std::exchange(self.engine->retired, self.backend);
  }
}

template <typename Object>
void attached_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  auto& self = *reinterpret_cast<Object*>(object);
  detach(self);
  Py_CLEAR(self.engine);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

}  // namespace service_streamer::bindings
