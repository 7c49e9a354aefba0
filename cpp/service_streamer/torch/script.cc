#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <iterator>
#include <stdexcept>
#include <utility>

#include "service_streamer/torch/program.h"

namespace service_streamer::torch_backend {
namespace {

class Script final : public Program {
 public:
  Script(const LoadOptions& options, const native::Signature& signature)
      : module_(::torch::jit::load(options.path, options.device)),
        forward_(module_.get_method("forward")),
        outputs_(signature.outputs) {}

  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) override {
    std::vector<c10::IValue> arguments(std::make_move_iterator(inputs.begin()), std::make_move_iterator(inputs.end()));
    return flat(forward_(std::move(arguments)));
  }

 private:
  std::vector<at::Tensor> flat(const c10::IValue& outputs) const {
    if (outputs.isTensor()) return {outputs.toTensor()};
    if (outputs.isTensorList()) return outputs.toTensorVector();
    std::vector<at::Tensor> tensors;
    if (outputs.isTuple()) {
      for (const c10::IValue& element : outputs.toTupleRef().elements()) tensors.push_back(element.toTensor());
    } else if (outputs.isGenericDict()) {
      const auto dict = outputs.toGenericDict();
      for (const native::TensorSpec& output : outputs_) tensors.push_back(dict.at(output.name).toTensor());
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
