#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <mutex>
#include <utility>

#include "service_streamer/torch/process.h"
#include "service_streamer/torch/program.h"

namespace service_streamer::torch_backend {
namespace {

class Package final : public Program {
 public:
  explicit Package(const LoadOptions& options)
      : loader_(options.path, "model", /*run_single_threaded=*/false, static_cast<std::size_t>(options.runners),
                options.device.is_cuda() ? options.device.index() : c10::DeviceIndex{-1}) {}

  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) override { return loader_.boxed_run(std::move(inputs)); }

 private:
  ::torch::inductor::AOTIModelPackageLoader loader_;
};

}  // namespace

std::unique_ptr<Program> load_package(const LoadOptions& options) {
  const std::lock_guard held(process_lock());
  return std::make_unique<Package>(options);
}

}  // namespace service_streamer::torch_backend
