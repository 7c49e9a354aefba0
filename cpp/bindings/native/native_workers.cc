#include "bindings/native/native_workers.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "bindings/futures/engine_object.h"
#include "bindings/native/native_backend.h"
#include "bindings/python/arguments.h"
#include "bindings/python/deferred_delete.h"
#include "bindings/python/errors.h"
#include "bindings/python/fork.h"
#include "bindings/python/methods.h"
#include "bindings/python/waiting.h"
#include "service_streamer/native/workers.h"

namespace service_streamer::bindings {
namespace {

struct NativeWorkersObject {
  PyObject_HEAD
  EngineObject* engine;
  native::Workers* workers;
};

// Keeps the engine as long as a thread uses it. The last thread has no GIL, so it defers the release.
class KeptEngine final : public DeferredDelete {
 public:
  explicit KeptEngine(EngineObject* engine) : engine_(Py_NewRef(reinterpret_cast<PyObject*>(engine))) {}
  ~KeptEngine() override { Py_DECREF(engine_); }
  KeptEngine(const KeptEngine&) = delete;
  KeptEngine& operator=(const KeptEngine&) = delete;

 private:
  PyObject* const engine_;
};

NativeWorkersObject* self_of(PyObject* self) {
  return reinterpret_cast<NativeWorkersObject*>(self);
}

PyObject* workers_start(PyObject* object, PyObject*) {
  NativeWorkersObject* self = self_of(object);
  if (!from_this_process(self->engine)) return nullptr;
  return none_or_raise(attempt([&] {
    const std::shared_ptr<KeptEngine> kept(new KeptEngine(self->engine), [](KeptEngine* engine) { leave(engine); });
    self->workers->start(kept);
  }));
}

PyObject* workers_wait_ready(PyObject* object, PyObject* timeout) {
  NativeWorkersObject* self = self_of(object);
  TimePoint deadline;
  if (!from_this_process(self->engine) || !deadline_from(timeout, deadline)) return nullptr;
  const int ready = wait_without_gil([&](Waiter& waiter) { return self->workers->wait_ready(waiter, deadline); });
  return ready < 0 ? nullptr : PyBool_FromLong(ready);
}

PyObject* workers_join(PyObject* object, PyObject* timeout) {
  NativeWorkersObject* self = self_of(object);
  TimePoint deadline;
  if (!from_this_process(self->engine) || !deadline_from(timeout, deadline)) return nullptr;
  const int ended = wait_without_gil([&](Waiter& waiter) { return self->workers->join(waiter, deadline); });
  delete_deferred();
  return ended < 0 ? nullptr : PyBool_FromLong(ended);
}

#ifdef __GLIBC__
// Runs before the destructors of libraries that were loaded before. Python has ended, and has written its files.
void end_without_destructors(int status, void*) {
  if (native::Workers::alive() == 0) return;
  std::fflush(nullptr);
  _exit(status);
}
#endif

PyObject* workers_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  EngineObject* engine;
  native::WorkersOptions options;
  int isolate_errors = 1;
  static const char* names[] = {"engine", "count", "isolate_errors", "isolation_budget", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!ipd", const_cast<char**>(names), engine_type, &engine,
                                   &options.count, &isolate_errors, &options.isolation_budget)) {
    return nullptr;
  }
  options.isolate_errors = isolate_errors != 0;
  if (!from_this_process(engine)) return nullptr;
  const auto* backend = dynamic_cast<NativeBackend*>(engine->own_backend);
  if (backend == nullptr) {
    PyErr_SetString(PyExc_ValueError, "this engine has no native model: it needs model=");
    return nullptr;
  }
  PyObject* object = type->tp_alloc(type, 0);
  if (object == nullptr) return nullptr;
  NativeWorkersObject* self = self_of(object);
  self->engine = reinterpret_cast<EngineObject*>(Py_NewRef(reinterpret_cast<PyObject*>(engine)));
  const CaughtError failure =
      attempt([&] { self->workers = new native::Workers(*engine->engine, backend->model().model(), options); });
  if (failure.raise()) Py_CLEAR(object);
  return object;
}

int workers_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(reinterpret_cast<PyObject*>(self_of(object)->engine));
  return 0;
}

// The threads go on until the engine is closed, and keep it.
void workers_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  NativeWorkersObject* self = self_of(object);
  if (self->engine->fork_generation == fork_generation()) delete self->workers;
  Py_CLEAR(self->engine);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"start", workers_start, METH_NOARGS,
     "start($self)\n--\n\n"
     "Starts the threads; once. Raises OSError."},
    {"wait_ready", workers_wait_ready, METH_O,
     "wait_ready($self, timeout, /)\n--\n\n"
     "Blocks until all threads have warmed up; False: the time is over."},
    {"join", workers_join, METH_O,
     "join($self, timeout, /)\n--\n\n"
     "Blocks until the threads have ended, after the engine is closed and empty; False: the time is over."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("The threads that run the native model of an engine; they never take the GIL.")},
    {Py_tp_new, reinterpret_cast<void*>(workers_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(workers_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(workers_traverse)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.NativeWorkers", sizeof(NativeWorkersObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

bool make_native_workers_type(PyObject* module) {
  return at_fork_in_child(native::Workers::reset_after_fork) && add_type(module, spec);
}

void leave_native_threads() {
#ifdef __GLIBC__
  if (native::Workers::alive() > 0) on_exit(end_without_destructors, nullptr);
#endif
}

}  // namespace service_streamer::bindings
