#pragma once

#include <memory>
#include <string>
#include <vector>

#include "service_streamer/native/signature.h"
#include "service_streamer/torch/tensor.h"

namespace service_streamer::torch_backend {

// A loaded model file. Inputs and outputs are flat lists of tensors in the order of the signature.
class Program {
 public:
  virtual ~Program() = default;

  // Blocks while the model runs. May be called by LoadOptions::runners threads at a time. Throws std::runtime_error.
  virtual std::vector<Tensor> run(std::vector<Tensor> inputs) = 0;
};

// The folder with the files of a package. The last reference removes it if it is still there, in the process that has
// made it.
std::shared_ptr<const std::string> temporary_folder(const std::string& path);

struct LoadOptions {
  std::string path;                           // of a TorchScript file, or of the shared object of a package
  std::shared_ptr<const std::string> folder;  // where the package was unpacked; nullptr for a TorchScript file
  int runners = 1;                            // threads that may run it at the same time
  TensorDevice device;

  bool is_script() const { return folder == nullptr; }
};

// May block for seconds. Throw std::exception with the reason.
std::unique_ptr<Program> load_package(const LoadOptions& options);
std::unique_ptr<Program> load_script(const LoadOptions& options, const native::Signature& signature);

}  // namespace service_streamer::torch_backend
