#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "service_streamer/native/signature.h"

namespace service_streamer::torch_backend {

// A model file, loaded: from flat lists of tensors to flat lists of tensors, in the order of the signature.
class Program {
 public:
  virtual ~Program() = default;

  // Blocks while it runs; by as many threads at a time as it was loaded for. Throws what the library throws.
  virtual std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) = 0;
};

struct LoadOptions {
  std::string path;
  bool script = false;  // a file of TorchScript (.pt) rather than a package of AOTInductor (.pt2)
  int runners = 1;      // threads that run it at a time
  c10::Device device{c10::kCPU};
};

// Take long; throw what the library throws.
std::unique_ptr<Program> load_package(const LoadOptions& options);
std::unique_ptr<Program> load_script(const LoadOptions& options, const native::Signature& signature);

}  // namespace service_streamer::torch_backend
