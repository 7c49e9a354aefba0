#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "service_streamer/native/signature.h"

namespace service_streamer::torch_backend {

// A loaded model file. Inputs and outputs are flat lists of tensors in the order of the signature.
class Program {
 public:
  virtual ~Program() = default;

  // Blocks while the model runs. May be called by LoadOptions::runners threads at a time. Throws what torch throws.
  virtual std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) = 0;
};

struct LoadOptions {
  std::string path;
  bool script = false;  // a TorchScript file (.pt) rather than an AOTInductor package (.pt2)
  int runners = 1;      // threads that may run it at the same time
  c10::Device device{c10::kCPU};
};

// May block for seconds. Throw what torch throws.
std::unique_ptr<Program> load_package(const LoadOptions& options);
std::unique_ptr<Program> load_script(const LoadOptions& options, const native::Signature& signature);

}  // namespace service_streamer::torch_backend
