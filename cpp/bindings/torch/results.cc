#include "bindings/torch/results.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "bindings/torch/errors.h"
#include "bindings/torch/python_tensors.h"

namespace service_streamer::bindings {
namespace {

using native::Structure;
using torch_backend::RunResult;
using torch_backend::Tensor;
using torch_backend::TensorOutputs;

// Takes the next tensors of the iterator, in the output structure of the signature. nullptr with an exception set on
// failure.
class Structured {
 public:
  // Steals the reference to a list of tensors.
  Structured(PyObject* tensors, const native::Signature& signature, const OutputForm& form)
      : tensors_(tensors), signature_(signature), form_(form) {}
  ~Structured() { Py_XDECREF(tensors_); }
  Structured(const Structured&) = delete;
  Structured& operator=(const Structured&) = delete;

  // Of the next `count` tensors.
  PyObject* next(std::size_t count) {
    if (signature_.output_structure == Structure::kTensor) return next_tensor();
    const auto size = static_cast<Py_ssize_t>(count);
    PyObject* whole = nullptr;
    if (signature_.output_structure == Structure::kTuple) whole = PyTuple_New(size);
    if (signature_.output_structure == Structure::kList) whole = PyList_New(size);
    if (signature_.output_structure == Structure::kDict) whole = PyDict_New();
    for (Py_ssize_t i = 0; whole != nullptr && i < size; ++i) {
      PyObject* element = next_tensor();
      bool stored = element != nullptr;
      if (stored && PyTuple_Check(whole)) {
        PyTuple_SET_ITEM(whole, i, element);
      } else if (stored && PyList_Check(whole)) {
        PyList_SET_ITEM(whole, i, element);
      } else if (stored) {
        const std::string& name = signature_.outputs[static_cast<std::size_t>(i)].name;
        stored = PyDict_SetItemString(whole, name.c_str(), element) == 0;
        Py_DECREF(element);
      }
      if (!stored) Py_CLEAR(whole);
    }
    if (whole == nullptr || form_.type.is_none()) return whole;
    PyObject* own = PyObject_CallOneArg(form_.type.ptr(), whole);
    Py_DECREF(whole);
    return own;
  }

 private:
  PyObject* next_tensor() {
    PyObject* tensor = PyList_GET_ITEM(tensors_, next_++);
    if (form_.kind == OutputKind::kTensor) return Py_NewRef(tensor);
    static PyObject* numpy = PyUnicode_InternFromString("numpy");
    return PyObject_CallMethodNoArgs(tensor, numpy);
  }

  PyObject* const tensors_;
  const native::Signature& signature_;
  const OutputForm& form_;
  Py_ssize_t next_ = 0;
};

// Cuts the padding off an output. `outer_dimensions` is 1 if the tensor has a batch dimension, else 0.
Tensor trimmed(Tensor tensor, const RunResult& run, const torch_backend::Model& model, std::size_t output,
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

void add_item(const RunResult& run, std::int64_t row, const torch_backend::Model& model, std::vector<Tensor>& tensors) {
  for (std::size_t output = 0; output < run.tensors.size(); ++output) {
    Tensor tensor = run.tensors[output].select(row);
    if (!run.extents.empty()) {
      tensor = trimmed(std::move(tensor), run, model, output, run.extents[static_cast<std::size_t>(row)], 0);
    }
    tensors.push_back(std::move(tensor));
  }
}

// The rows of a slice in one output, cut to the longest of them.
Tensor rows_of(const TensorOutputs::Slice& slice, std::size_t output, const torch_backend::Model& model) {
  const RunResult& run = *slice.run;
  Tensor tensor = run.tensors[output];
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
Tensor joined(std::vector<Tensor> tensors, const torch_backend::Model& model) {
  if (tensors.size() == 1) return tensors.front();
  const Tensor::Sizes first = tensors.front().sizes();
  std::vector<std::int64_t> whole(first.begin(), first.end());
  whole[0] = 0;
  bool padded = false;
  for (const Tensor& tensor : tensors) {
    const Tensor::Sizes sizes = tensor.sizes();
    whole[0] += sizes[0];
    for (std::size_t i = 1; i < whole.size(); ++i) {
      padded = padded || sizes[i] != whole[i];
      whole[i] = std::max(whole[i], sizes[i]);
    }
  }
  Tensor together = tensors.front().empty_like(whole, tensors.front().device());
  if (padded) together.zero();
  const bool left = model.options().collate.side == native::PadSide::kLeft;
  std::int64_t row = 0;
  for (const Tensor& tensor : tensors) {
    Tensor part = together.narrow(0, row, tensor.size(0));
    for (std::int64_t i = 1; i < tensor.rank(); ++i) {
      part = part.narrow(i, left ? part.size(i) - tensor.size(i) : 0, tensor.size(i));
    }
    part.copy(tensor, /*non_blocking=*/true);
    row += tensor.size(0);
  }
  return together;
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

// Converts C++ exceptions into Python exceptions.
template <typename Function>
PyObject* with_python_errors(Function function) {
  try {
    return function();
  } catch (const std::exception& error) {
    set_run_error(error);
    return nullptr;
  }
}

}  // namespace

PyObject* items_of(const std::vector<native::OutputRange>& ranges, const torch_backend::Model& model,
                   const OutputForm& form) {
  return with_python_errors([&]() -> PyObject* {
    const std::vector<Row> rows = rows_in_order(ranges);
    const std::size_t outputs = rows.empty() ? 0 : rows.front().run->tensors.size();
    std::vector<Tensor> tensors;
    tensors.reserve(rows.size() * outputs);
    for (const Row& row : rows) add_item(*row.run, row.row, model, tensors);
    PyObject* made = python_tensors(std::move(tensors));
    const bool plain = form.kind == OutputKind::kTensor && model.signature().output_structure == Structure::kTensor;
    if (made == nullptr || (plain && outputs == 1)) return made;
    Structured structured(made, model.signature(), form);
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(rows.size()));
    for (std::size_t i = 0; list != nullptr && i < rows.size(); ++i) {
      PyObject* item = structured.next(outputs);
      if (item == nullptr) {
        Py_CLEAR(list);
      } else {
        PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), item);
      }
    }
    return list;
  });
}

PyObject* batch_of(const std::vector<native::OutputRange>& ranges, const torch_backend::Model& model,
                   const OutputForm& form) {
  return with_python_errors([&]() -> PyObject* {
    const std::vector<TensorOutputs::Slice> slices = slices_in_order(ranges);
    const std::size_t outputs = slices.front().run->tensors.size();
    std::vector<Tensor> tensors;
    for (std::size_t output = 0; output < outputs; ++output) {
      std::vector<Tensor> rows;
      rows.reserve(slices.size());
      for (const TensorOutputs::Slice& slice : slices) rows.push_back(rows_of(slice, output, model));
      tensors.push_back(joined(std::move(rows), model));
    }
    PyObject* made = python_tensors(std::move(tensors));
    if (made == nullptr) return nullptr;
    return Structured(made, model.signature(), form).next(outputs);
  });
}

}  // namespace service_streamer::bindings
