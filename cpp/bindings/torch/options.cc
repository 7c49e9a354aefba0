#include "bindings/torch/options.h"

#include <pybind11/stl.h>

#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/torch/python_tensors.h"

namespace py = pybind11;

namespace service_streamer::bindings {
namespace {

using native::Structure;

Structure structure_from(const std::string& name) {
  if (name == "tensor") return Structure::kTensor;
  if (name == "tuple") return Structure::kTuple;
  if (name == "list") return Structure::kList;
  if (name == "dict") return Structure::kDict;
  throw py::value_error("unknown structure: " + name);
}

int symbol_named(const native::Signature& signature, const std::string& name) {
  for (std::size_t i = 0; i < signature.symbols.size(); ++i) {
    if (signature.symbols[i].name == name) return static_cast<int>(i);
  }
  throw py::value_error("unknown dimension: " + name);
}

// `given` is (name, dtype, sizes without the batch dimension, range of the numbers or None). A size is a number
// (fixed), a str (symbol) or None (unknown).
native::TensorSpec spec_from(const native::Signature& signature, const py::handle& given) {
  const auto tuple = given.cast<py::tuple>();
  native::TensorSpec spec;
  spec.name = tuple[0].cast<std::string>();
  if (!native::from_string(tuple[1].cast<std::string>(), spec.dtype))
    throw py::value_error("unknown dtype: " + tuple[1].cast<std::string>());
  for (const py::handle size : tuple[2]) {
    native::Dimension dimension;
    if (py::isinstance<py::str>(size)) {
      dimension.symbol = symbol_named(signature, size.cast<std::string>());
    } else if (!size.is_none()) {
      dimension.size = size.cast<std::int64_t>();
    }
    spec.dimensions.push_back(dimension);
  }
  if (spec.dimensions.size() > native::kMaxDimensions - 1)
    throw py::value_error("'" + spec.name + "' has too many dimensions: " + std::to_string(spec.dimensions.size()));
  if (!tuple[3].is_none()) {
    std::tie(spec.min_value, spec.max_value) = tuple[3].cast<std::tuple<std::int64_t, std::int64_t>>();
  }
  return spec;
}

}  // namespace

native::Scalar scalar_from(double value, native::Dtype dtype) {
  const py::module_ torch = py::module_::import("torch");
  const py::object tensor =
      torch.attr("full")(py::tuple(), value, py::arg("dtype") = torch.attr(native::to_string(dtype)));
  DlTensor described{};
  if (!describe_tensor(tensor.ptr(), described)) throw py::type_error("a number that is no plain tensor");
  native::Scalar number{};
  std::memcpy(number.data(), described.first(), native::size_of(dtype));
  return number;
}

native::CollateOptions collate_options_from(const py::dict& given) {
  native::CollateOptions collate;
  collate.pad = given["pad"].cast<bool>();
  collate.side = given["pad_left"].cast<bool>() ? native::PadSide::kLeft : native::PadSide::kRight;
  collate.pad_to = given["pad_to"].cast<std::vector<std::int64_t>>();
  collate.batch_sizes = given["batch_sizes"].cast<std::vector<std::int64_t>>();
  return collate;
}

torch_backend::ModelOptions model_options_from(const py::dict& given) {
  torch_backend::ModelOptions options;
  options.file.path = given["path"].cast<std::string>();
  options.file.runners = given["runners"].cast<int>();
  const py::object folder = given["folder"];
  if (!folder.is_none()) options.file.folder = torch_backend::temporary_folder(folder.cast<std::string>());
  options.devices.clear();
  for (const py::handle device : given["devices"]) {
    options.devices.push_back(torch_backend::TensorDevice::named(device.cast<std::string>()));
  }
  options.pipelined = given["pipelined"].cast<bool>();
  options.to_host = given["numpy"].cast<bool>();
  native::Signature& signature = options.signature;
  for (const py::handle symbol : given["symbols"]) {
    const auto [name, min, max] = symbol.cast<std::tuple<std::string, std::int64_t, std::int64_t>>();
    signature.symbols.push_back({.name = name, .min = min, .max = max});
  }
  for (const py::handle input : given["inputs"]) signature.inputs.push_back(spec_from(signature, input));
  for (const py::handle output : given["outputs"]) signature.outputs.push_back(spec_from(signature, output));
  signature.input_structure = structure_from(given["input_structure"].cast<std::string>());
  signature.output_structure = structure_from(given["output_structure"].cast<std::string>());
  signature.min_batch = given["min_batch"].cast<std::int64_t>();
  signature.max_batch = given["max_batch"].cast<std::int64_t>();

  native::CollateOptions& collate = options.collate;
  collate = collate_options_from(given);
  const auto values = given["pad_values"].cast<std::vector<double>>();
  for (std::size_t i = 0; i < signature.inputs.size(); ++i) {
    const double value = values.at(i);
    collate.pad_values.push_back(value != 0 ? scalar_from(value, signature.inputs[i].dtype) : native::Scalar{});
  }
  collate.mask = given["mask"].cast<int>();
  collate.lengths = given["lengths"].cast<int>();
  options.intra_op_threads = given["intra_op_threads"].cast<int>();
  options.warm_up = given["warmup"].cast<std::vector<std::int64_t>>();
  return options;
}

}  // namespace service_streamer::bindings
