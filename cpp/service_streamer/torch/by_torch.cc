// What needs torch's C++ library: compiled by build_torch for one version of torch. In the module of the package,
// without_torch.cc takes its place.

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <stdexcept>
#include <utility>

#include "service_streamer/torch/program.h"

namespace service_streamer::torch_backend {
namespace {

// A TensorHandle points to an at::Tensor.
at::Tensor taken(Tensor tensor) {
  const std::unique_ptr<at::Tensor> own(reinterpret_cast<at::Tensor*>(tensor.release()));
  return std::move(*own);
}

Tensor given(at::Tensor tensor) {
  return Tensor(reinterpret_cast<TensorHandle>(new at::Tensor(std::move(tensor))));
}

class Script final : public Program {
 public:
  Script(const LoadOptions& options, const native::Signature& signature)
      : module_(::torch::jit::load(options.path, c10::Device(options.device.str()))),
        forward_(module_.get_method("forward")),
        outputs_(signature.outputs) {}

  std::vector<Tensor> run(std::vector<Tensor> inputs) override {
    const c10::AutoGradMode no_gradients(false);
    std::vector<c10::IValue> arguments;
    for (Tensor& input : inputs) arguments.emplace_back(taken(std::move(input)));
    return flat(forward_(std::move(arguments)));
  }

 private:
  std::vector<Tensor> flat(const c10::IValue& outputs) const {
    std::vector<Tensor> tensors;
    if (outputs.isTensor()) {
      tensors.push_back(given(outputs.toTensor()));
    } else if (outputs.isTensorList()) {
      for (at::Tensor& element : outputs.toTensorVector()) tensors.push_back(given(std::move(element)));
    } else if (outputs.isTuple()) {
      for (const c10::IValue& element : outputs.toTupleRef().elements()) tensors.push_back(given(element.toTensor()));
    } else if (outputs.isGenericDict()) {
      const auto dict = outputs.toGenericDict();
      for (const native::TensorSpec& output : outputs_) tensors.push_back(given(dict.at(output.name).toTensor()));
    } else {
      throw std::runtime_error("the model must return a tensor, or a tuple, list or dict of tensors, not a " +
                               outputs.tagKind());
    }
    return tensors;
  }

  ::torch::jit::Module module_;
  ::torch::jit::Method forward_;  // used by all threads
  const std::vector<native::TensorSpec> outputs_;
};

}  // namespace

std::unique_ptr<Program> load_script(const LoadOptions& options, const native::Signature& signature) {
  return std::make_unique<Script>(options, signature);
}

}  // namespace service_streamer::torch_backend
