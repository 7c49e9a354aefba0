#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// The outputs of a model, cut into parts and joined. No function here runs without the GIL; most may run Python code.

namespace service_streamer::bindings {

// The outputs as a list of `expected` single outputs: a new reference, or nullptr with an exception set.
PyObject* as_list(PyObject* outputs, std::size_t expected);

// Cuts what predict_function returned into slices of so many outputs each: new references in `slices`. With `as_batch`
// they are slices of the same array, tensor or list; without it, lists of single outputs. False with an exception set
// and no slices: the number of outputs is wrong, or the type cannot be cut.
bool cut_outputs(PyObject* outputs, std::span<const std::uint32_t> counts, bool as_batch,
                 std::vector<PyObject*>& slices);

// Joins a list of the outputs of ranges of one request, in order. A new reference, or nullptr with an exception set.
PyObject* join_outputs(PyObject* pieces, bool as_batch);

// The first exception among the outputs, borrowed, or nullptr.
PyObject* exception_in(std::span<PyObject* const> outputs);
PyObject* exception_in(PyObject* outputs);  // nullptr also for what is neither a list nor a tuple

void drop_references(std::vector<PyObject*>& objects);

}  // namespace service_streamer::bindings
