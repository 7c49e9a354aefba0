#include "bindings/torch/results.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <stdexcept>

#include "bindings/torch/errors.h"
#include "service_streamer/torch/device.h"

namespace service_streamer::bindings {
namespace {

using native::Structure;
using torch_backend::RunResult;
using torch_backend::TensorOutputs;

// An output on a device was computed by a stream of the worker, which owns its memory. The memory must not be reused
// before work of the caller's stream is done, so torch is told of that stream.
const at::Tensor& output_of(const RunResult& run, std::size_t output) {
  const at::Tensor& tensor = run.tensors[output];
  if (!tensor.is_cpu()) tensor.record_stream(torch_backend::stream_of_this_thread(tensor.device()));
  return tensor;
}

PyObject* wrap(at::Tensor tensor, OutputKind kind) {
  PyObject* wrapped = THPVariable_Wrap(std::move(tensor));
  if (wrapped == nullptr || kind == OutputKind::kTensor) return wrapped;
  static PyObject* numpy = PyUnicode_InternFromString("numpy");
  PyObject* array = PyObject_CallMethodNoArgs(wrapped, numpy);
  Py_DECREF(wrapped);
  return array;
}

// Puts the tensors into the output structure of the signature. nullptr with an exception set on failure.
PyObject* structured(std::vector<at::Tensor> tensors, const native::Signature& signature, OutputKind kind) {
  if (signature.output_structure == Structure::kTensor) return wrap(std::move(tensors.front()), kind);
  const auto size = static_cast<Py_ssize_t>(tensors.size());
  PyObject* whole = nullptr;
  if (signature.output_structure == Structure::kTuple) whole = PyTuple_New(size);
  if (signature.output_structure == Structure::kList) whole = PyList_New(size);
  if (signature.output_structure == Structure::kDict) whole = PyDict_New();
  for (Py_ssize_t i = 0; whole != nullptr && i < size; ++i) {
    const auto index = static_cast<std::size_t>(i);
    PyObject* element = wrap(std::move(tensors[index]), kind);
    bool stored = element != nullptr;
    if (stored && PyTuple_Check(whole)) {
      PyTuple_SET_ITEM(whole, i, element);
    } else if (stored && PyList_Check(whole)) {
      PyList_SET_ITEM(whole, i, element);
    } else if (stored) {
      stored = PyDict_SetItemString(whole, signature.outputs[index].name.c_str(), element) == 0;
      Py_DECREF(element);
    }
    if (!stored) Py_CLEAR(whole);
  }
  return whole;
}

// Cuts the padding off an output. `outer_dimensions` is 1 if the tensor has a batch dimension, else 0.
at::Tensor trimmed(at::Tensor tensor, const RunResult& run, const torch_backend::Model& model, std::size_t output,
                   const std::vector<std::int64_t>& extents, std::int64_t outer_dimensions) {
  for (const torch_backend::Model::Trim& trim : model.trims()) {
    const std::int64_t dimension = trim.dimension + outer_dimensions;
    if (trim.output != output || extents[trim.symbol] == run.padded[trim.symbol]) continue;
    const std::int64_t missing = run.padded[trim.symbol] - extents[trim.symbol];
    const bool left = model.options().collate.side == native::PadSide::kLeft;
    tensor = tensor.narrow(dimension, left ? missing : 0, extents[trim.symbol]);
  }
  return tensor;
}

PyObject* item_of(const RunResult& run, std::int64_t row, const torch_backend::Model& model, OutputKind kind) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(run.tensors.size());
  for (std::size_t output = 0; output < run.tensors.size(); ++output) {
    at::Tensor tensor = output_of(run, output).select(0, row);
    if (!run.extents.empty()) {
      tensor = trimmed(std::move(tensor), run, model, output, run.extents[static_cast<std::size_t>(row)], 0);
    }
    tensors.push_back(std::move(tensor));
  }
  return structured(std::move(tensors), model.signature(), kind);
}

// The rows of a slice in one output, cut to the longest of them.
at::Tensor rows_of(const TensorOutputs::Slice& slice, std::size_t output, const torch_backend::Model& model) {
  const RunResult& run = *slice.run;
  at::Tensor tensor = output_of(run, output);
  if (tensor.size(0) != slice.count) tensor = tensor.narrow(0, slice.row, slice.count);
  if (run.extents.empty()) return tensor;
  std::vector<std::int64_t> longest(run.padded.size(), 0);
  for (std::uint32_t i = 0; i < slice.count; ++i) {
    const std::vector<std::int64_t>& extents = run.extents[static_cast<std::size_t>(slice.row) + i];
    std::transform(extents.begin(), extents.end(), longest.begin(), longest.begin(),
                   [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
  }
  return trimmed(std::move(tensor), run, model, output, longest, 1);
}

// Concatenates the rows of several runs. Shorter ones are padded with zeros.
at::Tensor joined(std::vector<at::Tensor> tensors, const torch_backend::Model& model) {
  if (tensors.size() == 1) return tensors.front();
  std::vector<std::int64_t> longest = tensors.front().sizes().vec();
  for (const at::Tensor& tensor : tensors) {
    for (std::int64_t i = 1; i < tensor.dim(); ++i) {
      auto& size = longest[static_cast<std::size_t>(i)];
      size = std::max(size, tensor.size(i));
    }
  }
  const bool left = model.options().collate.side == native::PadSide::kLeft;
  for (at::Tensor& tensor : tensors) {
    std::vector<std::int64_t> missing;  // (before, after) of each dimension, the last dimension first
    for (std::int64_t i = tensor.dim(); i-- > 1;) {
      const std::int64_t padding = longest[static_cast<std::size_t>(i)] - tensor.size(i);
      missing.push_back(left ? padding : 0);
      missing.push_back(left ? 0 : padding);
    }
    if (model.options().collate.pad) tensor = at::constant_pad_nd(tensor, missing);
  }
  return at::cat(tensors);
}

// The row of each item, in the order of the request. The slices of a range may be in any order.
struct Row {
  const RunResult* run = nullptr;
  std::int64_t row = 0;
};

std::vector<Row> rows_in_order(const std::vector<native::OutputRange>& ranges) {
  std::vector<Row> rows;
  for (const native::OutputRange& range : ranges) {
    const std::size_t first = rows.size();
    rows.resize(first + range.count);
    for (const TensorOutputs::Slice& slice : static_cast<const TensorOutputs&>(*range.outputs).slices) {
      for (std::uint32_t i = 0; i < slice.count; ++i) {
        rows[first + slice.begin + i] = {.run = slice.run.get(), .row = slice.row + i};
      }
    }
  }
  return rows;
}

std::vector<TensorOutputs::Slice> slices_in_order(const std::vector<native::OutputRange>& ranges) {
  std::vector<TensorOutputs::Slice> slices;
  for (const native::OutputRange& range : ranges) {
    const auto first = static_cast<std::ptrdiff_t>(slices.size());
    const auto& own = static_cast<const TensorOutputs&>(*range.outputs).slices;
    slices.insert(slices.end(), own.begin(), own.end());
    std::sort(slices.begin() + first, slices.end(),
              [](const TensorOutputs::Slice& a, const TensorOutputs::Slice& b) { return a.begin < b.begin; });
  }
  return slices;
}

// Calls the function without gradients, and converts C++ exceptions into Python exceptions.
template <typename Function>
PyObject* with_python_errors(Function function) {
  try {
    const c10::AutoGradMode no_gradients(false);
    return function();
  } catch (const std::exception& error) {
    set_run_error(error);
    return nullptr;
  }
}

}  // namespace

PyObject* items_of(const std::vector<native::OutputRange>& ranges, const torch_backend::Model& model, OutputKind kind) {
  return with_python_errors([&]() -> PyObject* {
    const std::vector<Row> rows = rows_in_order(ranges);
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(rows.size()));
    for (std::size_t i = 0; list != nullptr && i < rows.size(); ++i) {
      // Converted here, because an exception that left this block would leak the list.
      PyObject* item = with_python_errors([&] { return item_of(*rows[i].run, rows[i].row, model, kind); });
      if (item == nullptr) {
        Py_CLEAR(list);
      } else {
        PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), item);
      }
    }
    return list;
  });
}

PyObject* batch_of(const std::vector<native::OutputRange>& ranges, const torch_backend::Model& model, OutputKind kind) {
  return with_python_errors([&] {
    const std::vector<TensorOutputs::Slice> slices = slices_in_order(ranges);
    std::vector<at::Tensor> tensors;
    for (std::size_t output = 0; output < slices.front().run->tensors.size(); ++output) {
      std::vector<at::Tensor> rows;
      rows.reserve(slices.size());
      for (const TensorOutputs::Slice& slice : slices) rows.push_back(rows_of(slice, output, model));
      tensors.push_back(joined(std::move(rows), model));
    }
    return structured(std::move(tensors), model.signature(), kind);
  });
}

}  // namespace service_streamer::bindings
