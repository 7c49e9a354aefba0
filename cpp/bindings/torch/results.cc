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

// One that stays on its device was made by a stream of ours. It is done; but its memory must not go back to that stream before what
// the caller's does with it, and we in his name, is done, too.
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

// One tensor, or so many in a tuple, list or dict.
PyObject* structured(std::vector<at::Tensor> tensors, const native::Signature& signature, OutputKind kind) {
  if (signature.output_structure == Structure::kTensor) return wrap(std::move(tensors.front()), kind);
  const auto size = static_cast<Py_ssize_t>(tensors.size());
  PyObject* whole = nullptr;
  if (signature.output_structure == Structure::kTuple) whole = PyTuple_New(size);
  if (signature.output_structure == Structure::kList) whole = PyList_New(size);
  if (signature.output_structure == Structure::kDict) whole = PyDict_New();
  for (Py_ssize_t i = 0; whole != nullptr && i < size; ++i) {
    const auto place = static_cast<std::size_t>(i);
    PyObject* element = wrap(std::move(tensors[place]), kind);
    bool stored = element != nullptr;
    if (stored && PyTuple_Check(whole)) {
      PyTuple_SET_ITEM(whole, i, element);
    } else if (stored && PyList_Check(whole)) {
      PyList_SET_ITEM(whole, i, element);
    } else if (stored) {
      stored = PyDict_SetItemString(whole, signature.outputs[place].name.c_str(), element) == 0;
      Py_DECREF(element);
    }
    if (!stored) Py_CLEAR(whole);
  }
  return whole;
}

// The part of an output that is not padding.
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

// The rows of a slice, for one output.
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

// The rows of several runs in one tensor, those that are shorter padded with zeros.
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
    std::vector<std::int64_t> missing;  // of each dimension, the last one first: before it and after it
    for (std::int64_t i = tensor.dim(); i-- > 1;) {
      const std::int64_t some = longest[static_cast<std::size_t>(i)] - tensor.size(i);
      missing.push_back(left ? some : 0);
      missing.push_back(left ? 0 : some);
    }
    if (model.options().collate.pad) tensor = at::constant_pad_nd(tensor, missing);
  }
  return at::cat(tensors);
}

// The items in the order of the request: those of a slice lie side by side, the slices of a piece need not.
struct Row {
  const RunResult* run = nullptr;
  std::int64_t row = 0;
};

std::vector<Row> rows_in_order(const std::vector<native::Piece>& pieces) {
  std::vector<Row> rows;
  for (const native::Piece& piece : pieces) {
    const std::size_t first = rows.size();
    rows.resize(first + piece.count);
    for (const TensorOutputs::Slice& slice : static_cast<const TensorOutputs&>(*piece.outputs).slices) {
      for (std::uint32_t i = 0; i < slice.count; ++i) {
        rows[first + slice.begin + i] = {.run = slice.run.get(), .row = slice.row + i};
      }
    }
  }
  return rows;
}

std::vector<TensorOutputs::Slice> slices_in_order(const std::vector<native::Piece>& pieces) {
  std::vector<TensorOutputs::Slice> slices;
  for (const native::Piece& piece : pieces) {
    const auto first = static_cast<std::ptrdiff_t>(slices.size());
    const auto& own = static_cast<const TensorOutputs&>(*piece.outputs).slices;
    slices.insert(slices.end(), own.begin(), own.end());
    std::sort(slices.begin() + first, slices.end(),
              [](const TensorOutputs::Slice& a, const TensorOutputs::Slice& b) { return a.begin < b.begin; });
  }
  return slices;
}

// What the library throws as an exception of Python.
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

PyObject* items_of(const std::vector<native::Piece>& pieces, const torch_backend::Model& model, OutputKind kind) {
  return with_python_errors([&]() -> PyObject* {
    const std::vector<Row> rows = rows_in_order(pieces);
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(rows.size()));
    for (std::size_t i = 0; list != nullptr && i < rows.size(); ++i) {
      // What is thrown here would lose the list.
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

PyObject* batch_of(const std::vector<native::Piece>& pieces, const torch_backend::Model& model, OutputKind kind) {
  return with_python_errors([&] {
    const std::vector<TensorOutputs::Slice> slices = slices_in_order(pieces);
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
