#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/python/fork.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/calls/call.h"

namespace service_streamer::bindings {

struct EngineObject;

// The outputs of a range of a request that was cut over several batches.
struct OutputRange {
  std::uint32_t begin;
  PyObject* outputs;
};

// A Future is the queue node: the request of the core, embedded in the Python object of its caller. The type made here is
// the base of service_streamer.Future and, by itself, the node of a blocking predict().
//
// A request for worker processes, or for a native model, stands in a call of the core instead, whose other half may end it, and
// publish that, in any thread at any moment: what becomes of the future (its value, its callbacks) waits for somebody who has
// the GIL.
//
// While a request of its own has a hold on it the object has one more reference. Everything here is touched with the GIL held;
// the waits release it. Frames that do, or that may run Python code, own no C++ object that would need the GIL to be destroyed:
// a daemon thread may be ended in them when the interpreter finalises.
struct FutureObject {
  PyObject_HEAD
  Request* request;      // `own`, or that of `call`
  Request own;           // there is none where there is a call
  Call* call;            // counted, ipc::LocalCall or native::TensorCall; nullptr: the workers are Python threads
  Observers* observers;  // of the call
  EngineObject* engine;
  PyObject* items;    // tuple, while the request has a hold; nullptr where they lie in `value`
  PyObject* outputs;  // what its worker brought, on the way to value or exception
  PyObject* value;    // of single outputs: the list for them, which has the items at the beginning
  PyObject* exception;
  std::vector<OutputRange>* pieces;
  PyObject* callbacks;  // list of callables, and of tuples (mailbox, token) beyond the first of these
  PyObject* mailbox;    // who is told besides sleeping threads, and with which token
  PyObject* token;
  PyObject* condition;  // made when concurrent.futures.wait asks
  PyObject* waiters;
  std::uint32_t fork_generation;
  std::uint32_t decoders;  // threads that make the value of what its call has
  bool delivered;
  bool announced;  // once there is a condition: `_state` shows the end only when this is set, under that condition
  bool followed;   // of a call: the thread for callbacks will come when it has ended
};

// Made by make_future_type() when the module is initialised.
extern PyTypeObject* future_base_type;
bool make_future_type(PyObject* module);

inline FutureObject* future_of(Request& request) {
  return reinterpret_cast<FutureObject*>(reinterpret_cast<char*>(&request) - offsetof(FutureObject, own));
}

// A new future of `type` (future_base_type or a subclass), for so many items.
FutureObject* make_future(PyTypeObject* type, EngineObject* engine, Py_ssize_t size);

// The same for a request that others than Python threads work on; takes the reference to `call` over.
FutureObject* make_future(PyTypeObject* type, EngineObject* engine, Call* call, Observers* observers);

// Whether there may be greenlets, which wait otherwise than threads.
bool gevent_is_loaded();

// Whether the request has ended. In a forked child one that its parent will answer ends here.
bool is_done(FutureObject* future);

// Blocks (without the GIL) until done or the deadline: true or false. -1: an exception, raised by a signal handler, or because
// this thread is a worker of the same engine and would wait for itself.
int wait_for_future(FutureObject* future, TimePoint deadline);

void drop_pieces(FutureObject* future);

// Notes the first time that somebody has the answer.
void note_delivery(FutureObject* future);

// Makes the value or exception of a future that is done, of what came from a worker process or a native model; nothing where
// that was done before. False with an exception set: not now (a signal, no memory).
bool settle(FutureObject* future);

// What result() gives for a future that is done: a new reference, or nullptr with its exception raised.
PyObject* take_result(FutureObject* future);

// Ends the request before its time and publishes that; nothing if it has ended.
void end_future(FutureObject* future, Outcome outcome, bool even_if_running);

}  // namespace service_streamer::bindings
