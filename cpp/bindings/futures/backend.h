#pragma once

#include <Python.h>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/idle_worker.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/calls/call.h"

namespace service_streamer::bindings {

struct EngineObject;
struct FutureObject;

// How the requests of an engine reach its workers, and how their results come back. The implementations:
//
//   ThreadBackend    engine/     The workers are Python threads. A request is part of its future.
//   NativeBackend    native/     The workers are threads that run a native model. A request is a TensorCall.
//   ProcessBackend   processes/  The workers are other processes. A request is a SerializedCall. The Server, ClientLink
//                                or BrokerEgress that is attached to the engine later has a subclass.
//
// Every method is called with the GIL held; without a GIL, by any number of threads. Only query_running(), cancel() and
// wait() may release it.
class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Makes a future of `type` with the request for these items; nullptr with an exception set.
  virtual FutureObject* make_request(PyTypeObject* type, EngineObject* engine, PyObject* batch) = 0;

  // Called after the request was queued.
  virtual void submitted(Request& /*request*/) {}

  // The last step of requests that have ended: publishes the end, wakes waiting threads, runs callbacks and drops the
  // engine's reference. What the requests end with is stored before.
  virtual void publish(EndedRequests& ended) = 0;

  // Drops the engine's reference to requests that were published while a worker still had items of them.
  virtual void let_go(ReleasedRequests& released) = 0;

  // Makes the value or the exception of a future from the result of its call. False with an exception set: it has to be
  // tried again (a signal, no memory).
  virtual bool settle(FutureObject* /*future*/) { return true; }

  // A new list: what FutureBase._batches returns; nullptr with an exception set. Empty unless the workers are native
  // threads: others make the spans of batches themselves.
  virtual PyObject* take_batches(FutureObject* /*future*/) { return PyList_New(0); }

  // Raises the exception of a request that ended as Outcome::kLost.
  virtual void raise_loss(const FutureObject* future) const;

  // Blocks until the request ends, without the GIL, and returns as wait_without_gil() does. First wakes the worker that
  // the submit has left to this call.
  virtual int wait(FutureObject* future, TimePoint deadline, const WorkerWake& worker);
  // Whether that is worth while for a lone request.
  virtual bool wakes_worker_late() const { return false; }

  // Whether a worker has any of the items, as far as this process knows.
  virtual bool is_running(const FutureObject* future) const;

  // The same; asks the process that has the request. Blocks for a second at most. -1 with an exception set.
  virtual int query_running(FutureObject* future);

  // Cancels the request if it can still be cancelled, also in another process. False with an exception set.
  virtual bool cancel(FutureObject* future);

  // A new str: ": " and why the request has no answer, as far as that is known. nullptr with an exception set.
  virtual PyObject* obstacle(const FutureObject* future) const;
  // Why the engine was closed, in the same form; empty: by close().
  virtual PyObject* close_reason() const;
  // Raises the StreamerClosed of a request to a closed engine. Returns nullptr.
  PyObject* raise_closed() const;

  // What takes the batches of the engine, as a plural for error messages; nullptr: the Python threads in run_batches().
  virtual const char* workers() const = 0;

  // Whether deadlines are watched without run_timer().
  virtual bool watches_deadlines() const { return false; }

  // Stops its threads for good. Without a GIL, a back end that was attached is kept until the engine goes, because
  // other threads may be in its methods.
  virtual void retire() {}
  Backend* next_retired = nullptr;
};

// A new call of the core, and the observers in it; nullptr with an exception set.
struct NewCall {
  Call* call = nullptr;
  Observers* observers = nullptr;
};

// For workers that end and publish requests without the GIL: each request is a Call.
class CallBackend : public Backend {
 public:
  FutureObject* make_request(PyTypeObject* type, EngineObject* engine, PyObject* batch) final;
  void publish(EndedRequests& ended) final { calls::publish(ended); }
  void let_go(ReleasedRequests& released) final { calls::let_go(released); }

 protected:
  // `items`: a tuple that is not empty.
  virtual NewCall make_call(PyObject* items) = 0;
};

}  // namespace service_streamer::bindings
