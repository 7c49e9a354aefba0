#pragma once

#include <Python.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/deferred_wake.h"
#include "bindings/python/free_threading.h"
#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch_cut.h"
#include "service_streamer/batching/isolation.h"

namespace service_streamer::bindings {

// The Python type Batch: what one call of the model works on. EngineBatch (engine/) has requests of this process'
// engine, WorkerBatch (processes/) has requests of another process' engine; Python code cannot tell them apart.
//
// One worker thread uses a batch, with the GIL held. A method that returns false, or nullptr, has set an exception.
// A range has items of one request. The ranges are in the order of `items`.
//
// Without a GIL, other threads may read the items and the ranges in a Locked of guard(). So the worker thread changes
// them in one, too.
class BatchBase {
 public:
  virtual ~BatchBase() { Py_XDECREF(items); }  // subclasses end the requests that are left as lost
  BatchBase(const BatchBase&) = delete;
  BatchBase& operator=(const BatchBase&) = delete;

  PyObject* items = nullptr;     // list, which the model only gets copies of; nullptr once the batch is answered
  PyObject* own_items() const {  // a new reference, or nullptr
    const Locked lock(guard());
    return Py_XNewRef(items);
  }
  PyObject* exchange_items(PyObject* others) {
    const Locked lock(guard());
    return std::exchange(items, others);
  }

  virtual const void* guard() const = 0;
  std::atomic<bool> in_use{false};  // a thread is in a method that changes the batch

  // False in a forked child: the parent answers the batch.
  virtual bool from_this_process() const = 0;

  virtual std::size_t ranges() const = 0;  // 0: answered
  virtual std::size_t size() const = 0;    // items
  virtual TimePoint begun() const = 0;     // when its run began

  virtual const char* reason() const = 0;
  virtual Duration age() const = 0;  // of its oldest request, when it was cut

  // The trace context of the request of a range.
  struct RangeContext {
    const std::string* context = nullptr;  // nullptr: none
    std::uint32_t items = 0;               // of the range
    Duration queue_time{0};                // of the request
  };
  virtual RangeContext context_of(std::size_t range) const = 0;
  bool traced = false;  // a request of the whole batch has a trace context

  // Whether no caller waits for a range any more: its request has ended, or the deadline has passed.
  virtual bool ended(std::size_t range) const = 0;
  bool all_ended() const {
    bool all = true;
    for (std::size_t i = 0; all && i < ranges(); ++i) all = ended(i);
    return all;
  }

  // Whether callers, or this batch, keep what the model returns after the model may run again.
  virtual bool keeps_outputs() const = 0;

  // Answers every request. False with nothing changed: the outputs do not fit the items.
  // `later` may be left to wake the callers; nullptr: they are woken at once.
  virtual bool complete(PyObject* outputs, DeferredWake* later) = 0;
  virtual bool fail(PyObject* error) = 0;

  // For a batch that raised. split() and join() leave the items to the caller; the others drop the items with their
  // ranges, and answer the batch if nothing is left.
  // isolate_by() comes first. When the last part is answered, the engine hears what the runs have shown.
  virtual void isolate_by(std::shared_ptr<const Isolation> isolation) = 0;
  virtual BatchCut next(Isolation& isolation) const = 0;
  virtual BatchBase* split(const BatchCut& cut) = 0;  // the front, a new batch
  virtual bool join(BatchBase& front) = 0;            // of the same class; empty then
  virtual bool postpone() = 0;
  virtual bool drop_ended() = 0;

 protected:
  BatchBase() = default;

  // Takes out the ranges for which dropped(range) is true, with their items. To be called in a Locked of guard(), with
  // another reference to the items.
  template <typename Range, typename Dropped>
  bool take_out(std::vector<Range>& all, Dropped dropped) {
    PyObject* kept = PyList_New(0);
    Py_ssize_t next = 0;
    for (const Range& range : all) {
      for (const Py_ssize_t end = next + range.count; next < end; ++next) {
        if (kept != nullptr && !dropped(range) && PyList_Append(kept, PyList_GET_ITEM(items, next)) < 0) Py_CLEAR(kept);
      }
    }
    std::erase_if(all, dropped);
    Py_XSETREF(items, kept);
    return kept != nullptr;
  }
};

bool make_batch_type(PyObject* module);

// The Python object of a batch, which it deletes; nullptr with an exception set and the batch deleted.
PyObject* make_batch(BatchBase* batch);

// Its method run(), its member `traced` and its method complete(), for run_batches().
PyObject* run_batch(PyObject* batch, PyObject* predict);
bool is_traced(PyObject* batch);
bool complete_batch(PyObject* batch, PyObject* outputs, DeferredWake* later);

}  // namespace service_streamer::bindings
