#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "service_streamer/native/pipeline.h"
#include "service_streamer/torch/device.h"
#include "service_streamer/torch/runner.h"

namespace service_streamer::torch_backend {

// A Runner that computes its groups on a device through a Pipeline. While one group is computed, the next is collated
// and copied, and the outputs of the previous one are copied back. If the items are on the device, the outputs stay
// there.
class PipelinedRunner final : public Runner {
 public:
  PipelinedRunner(Model& model, std::size_t device);

  std::size_t depth() const override { return kDepth; }
  std::unique_ptr<native::LaunchedBatch> launch(std::span<const native::ItemRange> ranges) override;

 protected:
  std::shared_ptr<const RunResult> run_group() override;

 private:
  static constexpr std::size_t kDepth = 2;

  class Group;
  class Batch;

  std::unique_ptr<Group> launch_group();

  TorchDevice* torch_device_ = nullptr;  // owned by pipeline_
  native::Pipeline pipeline_;
};

}  // namespace service_streamer::torch_backend
