#pragma once

#include <Python.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/python/fork.h"
#include "service_streamer/batching/idle_worker.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/calls/call.h"

namespace service_streamer::bindings {

struct EngineObject;

// The outputs for a range of the items of a request that was split over several batches.
struct OutputRange {
  std::uint32_t begin;
  PyObject* outputs;
};

// The Python type FutureBase: base of service_streamer.Future, and by itself the future of a blocking predict().
//
// For Python threads it is the node of the engine's queue: the request is a member, and the engine holds a reference to
// the object as long as the request has holds. For other back ends the request is in a Call of the core, which a thread
// without the GIL can end and publish at any moment. The value is then made, and callbacks run, by a thread that takes
// the GIL later.
//
// All members are used with the GIL held, and only waits release it. Without a GIL, a Locked of the object guards the
// second group; the others are constant, or used by one thread at a time. A function that waits, or that may run Python
// code, owns no C++ object whose destructor needs the GIL: a daemon thread may be ended in it when the interpreter
// finalises (decision 004).
struct FutureObject {
  PyObject_HEAD
  Request* request;         // `own`, or that of `call`
  Request own;              // not constructed if there is a call
  Call* call;               // counted; ipc::LocalCall or native::TensorCall; nullptr: the request is `own`
  Observers* observers;     // `own_observers`, or those of `call`
  Observers own_observers;  // not constructed if there is a call
  EngineObject* engine;
  PyObject* items;  // tuple, as long as the request has holds; nullptr if the items are in `value`
  std::uint32_t fork_generation;

  // Guarded by a Locked.
  PyObject* outputs;  // set by workers, becomes the value or the exception
  PyObject* value;    // for single outputs: a list, in which they replace the items
  PyObject* exception;
  PyObject*
      order;  // list: the caller's index of each item, if they were sent in another order; nullptr once `value` is
              // in the caller's order
  std::vector<OutputRange>* output_ranges;
  PyObject* callbacks;  // list of callables
  PyObject* condition;  // made when concurrent.futures.wait() needs it
  PyObject* waiters;
  std::uint32_t decoders;  // threads that are making the value from the result of the call
  bool delivered;          // a caller has the result
  bool announced;          // with a condition: `_state` shows the end only when this is set, under the condition
  std::atomic<std::uint32_t> callers;  // of share() that have not left; 0: none may join
  bool followed;                       // with a call: the callbacks thread calls follow_up() when it has ended
};

// A member of the future, as a new reference or nullptr.
PyObject* member_of(FutureObject* future, PyObject* FutureObject::* member);

// Made by make_future_type() when the module is initialised.
extern PyTypeObject* future_base_type;
bool make_future_type(PyObject* module);

inline FutureObject* future_of(Request& request) {
  return reinterpret_cast<FutureObject*>(reinterpret_cast<char*>(&request) - offsetof(FutureObject, own));
}

// A new future of `type` (future_base_type or a subclass) with a request of `size` items of its own.
FutureObject* make_future(PyTypeObject* type, EngineObject* engine, Py_ssize_t size);

// The same with the request of a call. Takes over the reference to `call`.
FutureObject* make_future(PyTypeObject* type, EngineObject* engine, Call* call, Observers* observers);

// Whether the request has ended. In a forked child this ends a request that is the parent's.
bool is_done(FutureObject* future);

// Blocks without the GIL until the request has ended (1) or the deadline passed (0). -1 with an exception set: from a
// signal handler, or because this thread is a worker of the same engine and would wait for itself. Wakes `worker` in
// any case: if possible after the GIL is released, because a Python worker would only sleep again to wait for the GIL.
int wait_for_future(FutureObject* future, TimePoint deadline, WorkerWake worker = {});

void drop_output_ranges(FutureObject* future);

// Tells the engine's statistics, once, that a caller has the result.
void note_delivery(FutureObject* future);

// Makes the value or the exception of a future that is done from the result of its call, once. False with an exception
// set: it has to be tried again (a signal, no memory).
bool settle(FutureObject* future);

// Ends the part of a caller in a request that the dict `live` may have under the key. With the last one the request is
// abandoned. Keeps an exception that is set.
void leave(FutureObject* future, PyObject* live, PyObject* key);

// The value of a future that is done, a new reference; nullptr with its exception raised.
PyObject* take_result(FutureObject* future);

// Raises the QueueFull of a request that would miss the target of the engine.
PyObject* raise_refused(const Request& request);

// Ends the request before it is answered, unless it has ended, and publishes that.
void end_future(FutureObject* future, Outcome outcome, bool even_if_running);

}  // namespace service_streamer::bindings
