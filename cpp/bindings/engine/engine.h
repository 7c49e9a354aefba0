#pragma once

#include <Python.h>

namespace service_streamer::bindings {

bool make_engine_type(PyObject* module);

// Methods of the engine for its callers (METH_FASTCALL): batch, timeout, priority, tenant.
PyObject* engine_predict(PyObject* self, PyObject* const* args, Py_ssize_t nargs);
PyObject* engine_submit(PyObject* self, PyObject* const* args, Py_ssize_t nargs);
PyObject* engine_submit_async(PyObject* self, PyObject* const* args, Py_ssize_t nargs);
// Methods for callers with equal items, whose last arguments are a dict of requests and a key.
PyObject* engine_share(PyObject* self, PyObject* const* args, Py_ssize_t nargs);
PyObject* engine_predict_shared(PyObject* self, PyObject* const* args, Py_ssize_t nargs);

// Methods for its worker threads (METH_VARARGS: predict, logged) and its timer thread (METH_NOARGS).
PyObject* engine_run_batches(PyObject* self, PyObject* args);
PyObject* engine_run_timer(PyObject* self, PyObject* none);

// Methods for a worker thread that works on many batches at a time: METH_O (timeout), and METH_NOARGS for any thread.
PyObject* engine_next_batch(PyObject* self, PyObject* timeout);
PyObject* engine_ring(PyObject* self, PyObject* none);

// For a thread that runs the model of batches that others take (METH_NOARGS).
PyObject* engine_begin_serving(PyObject* self, PyObject* none);
// For the hook `ended_early` (METH_NOARGS).
PyObject* engine_unwanted_threads(PyObject* self, PyObject* none);

}  // namespace service_streamer::bindings
