#pragma once

#include <Python.h>

namespace service_streamer::bindings {

// A function or an exception class of service_streamer/_from_core.py, under its name there. C++ uses no other Python
// code of the package by a name. When the package is imported, look_up() finds all of them, and they are kept until the
// process ends: a call imports nothing, also while the interpreter shuts down.
//
// A PythonObject is a constant of this module, to be used with the GIL held.
class PythonObject {
 public:
  explicit PythonObject(const char* name) noexcept;
  PythonObject(const PythonObject&) = delete;
  PythonObject& operator=(const PythonObject&) = delete;

  // Calls it with at most two arguments, for what is rare: a new reference; nullptr with an exception set.
  PyObject* operator()(PyObject* one = nullptr, PyObject* another = nullptr) const;

  // Borrowed; nullptr with an exception set: the package is not imported yet.
  PyObject* get() const;

  // Finds every PythonObject in the dict `names`. Returns a list of their names; nullptr with an exception set.
  static PyObject* look_up(PyObject* names);

 private:
  const char* const name_;
  PythonObject* const next_;
  PyObject* object_ = nullptr;
};

namespace python {

// exceptions
inline PythonObject cancelled_error{"CancelledError"};
inline PythonObject output_size_mismatch{"OutputSizeMismatch"};
inline PythonObject queue_full{"QueueFull"};
inline PythonObject request_timeout{"RequestTimeout"};
inline PythonObject streamer_closed{"StreamerClosed"};
inline PythonObject worker_lost{"WorkerLost"};

// exceptions of models and workers
inline PythonObject copy_error{"copy_error"};
inline PythonObject dropped{"dropped"};
inline PythonObject expired{"expired"};
inline PythonObject for_callers{"for_callers"};
inline PythonObject init_error{"init_error"};
inline PythonObject pack_error{"pack_error"};
inline PythonObject unpack_error{"unpack_error"};

// messages
inline PythonObject batch_remedy{"batch_remedy"};
inline PythonObject closed{"closed"};
inline PythonObject import_obstacle{"import_obstacle"};
inline PythonObject see{"see"};
inline PythonObject short_text{"short_text"};
inline PythonObject warn_in_coroutine{"warn_in_coroutine"};
inline PythonObject warn_of_import{"warn_of_import"};

// pickling
inline PythonObject as_array{"as_array"};
inline PythonObject dumps{"dumps"};
inline PythonObject refuse_answer{"refuse_answer"};
inline PythonObject refuse_input{"refuse_input"};
inline PythonObject refuse_item{"refuse_item"};
inline PythonObject refuse_output{"refuse_output"};
inline PythonObject unread{"unread"};

// outputs
inline PythonObject check_outputs{"check_outputs"};
inline PythonObject cut_outputs{"cut_outputs"};
inline PythonObject in_order{"in_order"};
inline PythonObject join_outputs{"join_outputs"};
inline PythonObject output_rows{"output_rows"};
inline PythonObject parts_in_order{"parts_in_order"};
inline PythonObject rebuilt{"rebuilt"};

// futures
inline PythonObject in_event_loop{"in_event_loop"};
inline PythonObject notify_waiters{"notify_waiters"};
inline PythonObject open_waits{"open_waits"};
inline PythonObject run_callback{"run_callback"};
inline PythonObject start_callbacks{"start_callbacks"};

}  // namespace python

bool make_from_core_function(PyObject* module);

}  // namespace service_streamer::bindings
