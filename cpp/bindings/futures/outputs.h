#pragma once

#include <Python.h>

#include <cstdint>
#include <span>
#include <vector>

#include "bindings/futures/future.h"
#include "service_streamer/batching/batch.h"

namespace service_streamer::bindings {

// Cuts what predict_function returned into slices of so many outputs each, new references in `slices`: as items lists of single
// outputs, as batch slices of the same array, tensor or list. False, with an exception set and no slices: it does not fit.
bool cut_outputs(PyObject* outputs, std::span<const std::uint32_t> counts, bool as_batch,
                 std::vector<PyObject*>& slices);

// Outputs as a list of single ones, so many: a new reference, or nullptr with an exception set.
PyObject* as_list(PyObject* outputs, std::size_t expected);

// The pieces of a request that was cut, a list in order, joined.
PyObject* join_outputs(PyObject* pieces, bool as_batch);

// The first exception among the outputs of a part, borrowed, or nullptr.
PyObject* exception_in(PyObject* part);

// Shares out what predict_function returned, to the futures with a part in the batch. As items: into the lists of single
// outputs that their callers brought along; as batch: slices of the same array, tensor or list. A part with an exception
// among its outputs is marked failed and gets that. False, with an exception set and nothing changed: they do not fit.
bool distribute(PyObject* outputs, Batch& batch, bool as_batch);

// Makes the value of a future whose outputs are all there.
void finish_value(FutureObject* future, bool as_batch);

}  // namespace service_streamer::bindings
