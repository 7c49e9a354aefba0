#include "bindings/processes/worker_link.h"

#include <string>
#include <utility>

#include "bindings/batches/run_batches.h"
#include "bindings/processes/worker_batch.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/methods.h"

namespace service_streamer::bindings {
namespace {

using ReceiveStatus = ipc::WorkerLink::ReceiveStatus;

WorkerLinkObject* self_of(PyObject* self) {
  return reinterpret_cast<WorkerLinkObject*>(self);
}

// Runs `wait` without the GIL, again after every signal whose handler did not raise. False with an exception set.
template <typename Wait>
bool wait_for_message(ReceiveStatus& status, Wait wait) {
  do {
    const CaughtError failure = attempt_without_gil([&] { status = wait(); });
    if (failure.raise()) return false;
    if (status == ReceiveStatus::kInterrupted && PyErr_CheckSignals() < 0) return false;
  } while (status == ReceiveStatus::kInterrupted);
  return true;
}

PyObject* link_receive_setup(PyObject* self, PyObject*) {
  auto* setup = new ipc::Bytes;
  ReceiveStatus status;
  PyObject* bytes = nullptr;
  if (wait_for_message(status, [&] { return self_of(self)->link->receive_setup(*setup); })) {
    bytes = status == ReceiveStatus::kReceived ? PyBytes_FromStringAndSize(reinterpret_cast<const char*>(setup->data()),
                                                                           static_cast<Py_ssize_t>(setup->size()))
                                               : Py_NewRef(Py_None);
  }
  delete setup;
  return bytes;
}

// Sends a text. If the engine has gone, the next wait for a batch shows it.
PyObject* send(PyObject* self, PyObject* text, bool (ipc::WorkerLink::*message)(const std::string&)) {
  Py_ssize_t size;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) return nullptr;
  auto* copy = new std::string(data, static_cast<std::size_t>(size));
  const CaughtError failure = attempt_without_gil([&] { (self_of(self)->link->*message)(*copy); });
  delete copy;
  return none_or_raise(failure);
}

PyObject* link_send_ready(PyObject* self, PyObject* about) {
  return send(self, about, &ipc::WorkerLink::send_ready);
}

PyObject* link_send_init_failed(PyObject* self, PyObject* traceback) {
  return send(self, traceback, &ipc::WorkerLink::send_init_failed);
}

// The next Batch object; None when the engine has closed the connection, or when this process is a forked child.
PyObject* next_batch(WorkerLinkObject* self) {
  while (self->fork_generation == fork_generation()) {
    auto* received = new ReceivedBatch(self);
    ReceiveStatus status;
    const bool waited =
        wait_for_message(status, [&] { return self->link->next_batch(received->id, received->message); });
    if (!waited || status != ReceiveStatus::kReceived) {
      delete received;
      return waited ? Py_NewRef(Py_None) : nullptr;
    }
    PyObject* batch = unpack(received);
    if (batch != Py_None) return batch;
    Py_DECREF(batch);  // every request had an item that could not be unpickled
  }
  Py_RETURN_NONE;
}

PyObject* link_next_batch(PyObject* object, PyObject* timeout) {
  WorkerLinkObject* self = self_of(object);
  TimePoint deadline;
  if (!deadline_from(timeout, deadline)) return nullptr;
  while (self->fork_generation == fork_generation()) {
    auto* received = new ReceivedBatch(self);
    ReceiveStatus status;
    const CaughtError failure =
        attempt_without_gil([&] { status = self->link->next_batch(received->id, received->message, deadline); });
    if (status == ReceiveStatus::kReceived && !failure) {
      PyObject* batch = unpack(received);
      if (batch != Py_None) return batch;
      Py_DECREF(batch);  // its item could not be unpickled
      continue;
    }
    delete received;
    if (failure.raise()) return nullptr;
    if (status == ReceiveStatus::kClosed) Py_RETURN_FALSE;
    if (PyErr_CheckSignals() < 0) return nullptr;
    Py_RETURN_NONE;
  }
  Py_RETURN_FALSE;
}

PyObject* link_ring(PyObject* self, PyObject*) {
  return none_or_raise(attempt([&] { self_of(self)->link->ring(); }));
}

PyObject* link_send_paused(PyObject* self, PyObject* number) {
  unsigned count;
  if (!PyArg_Parse(number, "I", &count)) return nullptr;
  return none_or_raise(attempt_without_gil([&] { self_of(self)->link->send_paused(count); }));
}

PyObject* link_places(PyObject* self, void*) {
  return PyLong_FromSize_t(self_of(self)->link->places());
}

PyObject* link_run_batches(PyObject* object, PyObject* args) {
  PyObject *predict, *logged;
  if (!PyArg_ParseTuple(args, "OO:run_batches", &predict, &logged)) return nullptr;
  return run_batches([self = self_of(object)](DeferredWake&) { return next_batch(self); }, predict, logged);
}

PyObject* link_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  int socket;
  int output_batch;
  int inline_outputs = 0;
  static const char* names[] = {"socket", "output_batch", "inline", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ip|p", const_cast<char**>(names), &socket, &output_batch,
                                   &inline_outputs)) {
    return nullptr;
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  self_of(self)->output_batch = output_batch != 0;
  self_of(self)->inline_outputs = inline_outputs != 0;
  self_of(self)->fork_generation = fork_generation();
  const CaughtError failure = attempt([&] { self_of(self)->link = new ipc::WorkerLink(FileDescriptor(socket)); });
  if (failure.raise()) Py_CLEAR(self);
  return self;
}

void link_dealloc(PyObject* self) {
  if (self_of(self)->fork_generation == fork_generation()) delete self_of(self)->link;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"receive_setup", link_receive_setup, METH_NOARGS,
     "receive_setup($self)\n--\n\n"
     "Blocks until the engine has sent what is needed to load the model; None: the engine has gone."},
    {"send_ready", link_send_ready, METH_O,
     "send_ready($self, about, /)\n--\n\n"
     "Tells the engine that the model is loaded; `about`, JSON, shows in its statistics."},
    {"send_init_failed", link_send_init_failed, METH_O,
     "send_init_failed($self, traceback, /)\n--\n\n"
     "Tells the engine that the model could not be loaded."},
    {"run_batches", link_run_batches, METH_VARARGS,
     "run_batches($self, predict, logged, /)\n--\n\n"
     "Runs and answers what comes; blocks until the engine closes the connection: None.\n\n"
     "Or until a batch is left to the caller: (batch, raised, refused), with what\n"
     "`predict` raised, with why its outputs were refused, or with neither: it was\n"
     "not run, because logged() is true or a request has a trace context."},
    {"next_batch", link_next_batch, METH_O,
     "next_batch($self, timeout, /)\n--\n\n"
     "Receives a batch; None: none came within so many seconds, or ring() was called.\n\n"
     "False: the engine has closed the connection."},
    {"ring", link_ring, METH_NOARGS,
     "ring($self)\n--\n\n"
     "Ends this or the next wait in next_batch(). Any thread."},
    {"send_paused", link_send_paused, METH_O,
     "send_paused($self, number, /)\n--\n\n"
     "Tells the engine how many of the batches are paused; it sends so many more."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef attributes[] = {
    {"places", link_places, nullptr, "How many batches this worker may work on at a time; 0: not known yet.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("A worker process' connection to its engine; takes the socket over.")},
    {Py_tp_new, reinterpret_cast<void*>(link_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(link_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.WorkerLink", sizeof(WorkerLinkObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool make_worker_link_type(PyObject* module) {
  return add_type(module, spec);
}

}  // namespace service_streamer::bindings
