#include "service_streamer/torch/pipelined_runner.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "service_streamer/torch/errors.h"

namespace service_streamer::torch_backend {
namespace {

bool lies_in(const Tensor& tensor, const native::Collator::Tensor& input) {
  const std::less<const void*> before;
  const void* data = tensor.storage();
  return !before(data, input.data) && before(data, input.data + native::bytes_of(input));
}

}  // namespace

// One run: the items of a batch that fit together.
class PipelinedRunner::Group final : public native::DeviceRun {
 public:
  explicit Group(const PipelinedRunner& runner) : places(runner.group_places_), runner_(runner) {
    outputs_stay_on_device = runner.group_.front().ready != nullptr && !runner.model_.options().to_host;
    runner.record_extents(*result);
  }

  std::vector<Bytes> compute(std::span<const native::Collator::Tensor> inputs) override {
    const UseStream use(runner_.torch_device_->stream_of(native::Device::Stream::kCompute));
    result->tensors = runner_.compute(inputs);
    std::vector<Bytes> outputs;
    for (Tensor& tensor : result->tensors) {
      if (tensor.is_complex()) tensor = tensor.clone();  // may be conjugated, which its bytes do not tell
      tensor = tensor.contiguous_on(runner_.torch_device_->device());
      // The memory of the inputs is reused by a later batch, so an output must not share it.
      const auto is_in = [&](const native::Collator::Tensor& input) { return lies_in(tensor, input); };
      if (outputs_stay_on_device && std::ranges::any_of(inputs, is_in)) tensor = tensor.clone();
      outputs.emplace_back(tensor.data(), tensor.bytes());
    }
    return outputs;
  }

  // Copies to ordinary memory, which callers may keep. Pinned memory is scarce and reused.
  void collect(std::span<const Bytes> outputs) override {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      Tensor& tensor = result->tensors[i];
      Tensor here = tensor.empty_like(tensor.sizes(), {});
      if (!outputs[i].empty()) std::memcpy(here.data(), outputs[i].data(), outputs[i].size());
      tensor = std::move(here);
    }
  }

  const std::shared_ptr<RunResult> result = std::make_shared<RunResult>();
  const std::vector<Place> places;

 private:
  const PipelinedRunner& runner_;
};

class PipelinedRunner::Batch final : public native::LaunchedBatch {
 public:
  explicit Batch(native::Pipeline& pipeline) : pipeline_(pipeline) {}
  ~Batch() override {
    for (const std::unique_ptr<Group>& group : groups) {
      if (group != nullptr) pipeline_.abandon(*group);
    }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void finish(std::span<std::unique_ptr<native::Outputs>> outputs) override {
    const std::vector<TensorOutputs*> opened = open(outputs);
    for (const std::unique_ptr<Group>& group : groups) {
      with_run_errors([&] { pipeline_.finish(*group); });
      distribute(group->result, group->places, opened);
    }
  }

  std::vector<std::unique_ptr<Group>> groups;  // the last one is nullptr if its launch failed

 private:
  native::Pipeline& pipeline_;
};

PipelinedRunner::PipelinedRunner(Model& model, std::size_t device)
    : Runner(model, device),
      pipeline_(
          [&] {
            auto own = std::make_unique<TorchDevice>(model.device(device));
            torch_device_ = own.get();
            return own;
          }(),
          model.signature(), model.options().collate, kDepth + 1) {}

std::unique_ptr<native::LaunchedBatch> PipelinedRunner::launch(std::span<const native::ItemRange> ranges) {
  read(ranges);
  auto batch = std::make_unique<Batch>(pipeline_);
  while (pick_group()) {
    std::unique_ptr<Group>& group = batch->groups.emplace_back();  // first, so that a launched group cannot be lost
    group = launch_group();
  }
  return batch;
}

std::shared_ptr<const RunResult> PipelinedRunner::run_group() {
  const std::unique_ptr<Group> group = launch_group();
  with_run_errors([&] { pipeline_.finish(*group); });
  return group->result;
}

std::unique_ptr<PipelinedRunner::Group> PipelinedRunner::launch_group() {
  collator_.arrange(group_);
  auto group = std::make_unique<Group>(*this);
  group->phases = phases;
  with_run_errors([&] { pipeline_.launch(group_, *group); });
  return group;
}

}  // namespace service_streamer::torch_backend
