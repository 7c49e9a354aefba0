#include "bindings/engine/distribute.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/batches/outputs.h"
#include "bindings/python/errors.h"
#include "bindings/python/free_threading.h"

namespace service_streamer::bindings {
namespace {

// The output ranges of a future as a list, in order.
PyObject* list_of(std::vector<OutputRange>& ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const OutputRange& a, const OutputRange& b) { return a.begin < b.begin; });
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(ranges.size()));
  for (std::size_t i = 0; list != nullptr && i < ranges.size(); ++i) {
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), Py_NewRef(ranges[i].outputs));
  }
  return list;
}

void fail_with(RequestRange& range, PyObject* error) {
  range.failed = true;
  set_outputs(future_of(*range.request), error);
}

// Replaces an exception that would end a loop or a thread of its caller. Runs Python code, so it comes last.
void check_errors(const Batch& batch) {
  for (const RequestRange& range : batch.ranges) {
    if (!range.failed) continue;
    FutureObject* future = future_of(*range.request);
    PyObject* raised = nullptr;
    {
      const Locked lock(future);
      raised = Py_XNewRef(future->outputs);
    }
    if (raised == nullptr) continue;  // another batch has ended the request
    PyObject* error = python::for_callers(raised);
    if (error == nullptr) {
      PyErr_Clear();  // no memory: the exception stays as it is
    } else if (error != raised) {
      const Locked lock(future);
      if (future->outputs == raised) std::swap(future->outputs, error);
    }
    Py_XDECREF(error);
    Py_DECREF(raised);
  }
}

// Replaces the items in the callers' lists by their outputs. Allocates nothing, so no garbage collection comes between
// two batches. The batch still refers to the items, so no destructor of theirs runs here. True: a range has failed.
bool fill_lists(PyObject* outputs, Batch& batch) {
  PyObject** next = PySequence_Fast_ITEMS(outputs);
  bool failed = false;
  for (RequestRange& range : batch.ranges) {
    if (PyObject* error = exception_in({next, range.count})) {
      fail_with(range, error);
      failed = true;
    } else {
      PyObject** own = PySequence_Fast_ITEMS(future_of(*range.request)->value) + range.begin;
      for (std::uint32_t i = 0; i < range.count; ++i) Py_SETREF(own[i], Py_NewRef(next[i]));
    }
    next += range.count;
  }
  return failed;
}

}  // namespace

void set_outputs(FutureObject* future, PyObject* outputs) {
  PyObject* own = Py_NewRef(outputs);
  {
    const Locked lock(future);
    std::swap(future->outputs, own);
  }
  Py_XDECREF(own);
}

bool distribute(PyObject* outputs, Batch& batch, bool as_batch) {
  if (!as_batch) {
    PyObject* list = as_list(outputs, batch.items);
    if (list == nullptr) return false;
    const bool failed = fill_lists(list, batch);
    Py_DECREF(list);
    if (failed) check_errors(batch);
    return true;
  }

  // Everything that may run Python code comes first: the futures change only if all of it worked.
  std::vector<std::uint32_t> counts(batch.ranges.size());
  std::transform(batch.ranges.begin(), batch.ranges.end(), counts.begin(),
                 [](const RequestRange& range) { return range.count; });
  std::vector<PyObject*> slices;
  if (!cut_outputs(outputs, counts, true, slices)) return false;

  bool failed = false;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    RequestRange& range = batch.ranges[i];
    FutureObject* future = future_of(*range.request);
    if (PyObject* error = exception_in(slices[i])) {
      fail_with(range, error);
      failed = true;
    } else if (range.count == range.request->size) {
      std::swap(future->outputs, slices[i]);
    } else {
      const Locked lock(future);
      if (future->output_ranges == nullptr) future->output_ranges = new std::vector<OutputRange>;
      future->output_ranges->push_back({.begin = range.begin, .outputs = std::exchange(slices[i], nullptr)});
    }
  }
  drop_references(slices);
  if (failed) check_errors(batch);
  return true;
}

void finish_value(FutureObject* future, bool as_batch) {
  if (!as_batch) return;
  if (future->output_ranges == nullptr) {
    std::swap(future->value, future->outputs);
    return;
  }
  PyObject* list = list_of(*future->output_ranges);
  future->value = list != nullptr ? join_outputs(list, true) : nullptr;
  Py_XDECREF(list);
  if (future->value == nullptr) future->exception = take_exception();
  drop_output_ranges(future);
}

}  // namespace service_streamer::bindings
