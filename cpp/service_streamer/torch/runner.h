#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "service_streamer/native/collate.h"
#include "service_streamer/native/model.h"
#include "service_streamer/torch/model.h"

namespace service_streamer::torch_backend {

// Runs a Model for one worker: collates the items, runs the program, and distributes the outputs. This class computes
// in the calling thread; PipelinedRunner overrides that. Used by one thread at a time.
class Runner : public native::Runner {
 public:
  Runner(Model& model, std::size_t device);

  void run(std::span<const native::ItemRange> ranges, std::span<std::unique_ptr<native::Outputs>> outputs) override;

  // Runs a batch of this many items of zeros, once for each size of pad_to. Ignores errors of the model, which may not
  // accept zeros.
  void warm_up(std::size_t items);

 protected:
  using Item = native::Collator::Item;

  // The position of an item in the batch, where its outputs go.
  struct Place {
    std::size_t range = 0;
    std::uint32_t index = 0;  // within the range
  };

  // A batch is run in groups of items that fit together. read() collects the items of a batch. pick_group() moves the
  // oldest item and all that fit with it to group_, or returns false. run_group() runs them.
  void read(std::span<const native::ItemRange> ranges);
  bool pick_group();
  virtual std::shared_ptr<const RunResult> run_group();

  // Runs the program on inputs that are on its device. Throws RunError if an output does not have one row for each
  // item, or is smaller than its signature says.
  std::vector<Tensor> compute(std::span<const native::Collator::Tensor> inputs) const;
  void check_trims(std::span<const Tensor> tensors) const;
  void record_extents(RunResult& result) const;  // of the current group, after Collator::arrange()

  // open() makes an empty TensorOutputs for each range. distribute() adds the rows of a run to them.
  static std::vector<TensorOutputs*> open(std::span<std::unique_ptr<native::Outputs>> outputs);
  static void distribute(const std::shared_ptr<const RunResult>& result, std::span<const Place> places,
                         std::span<TensorOutputs* const> outputs);

  Model& model_;
  const std::size_t device_;  // index in ModelOptions::devices
  native::Collator collator_;
  std::vector<Item> group_;
  std::vector<Place> group_places_;

 private:
  void warm_up(std::size_t items, std::int64_t extent);

  // The items of the current batch that are not in a group yet, in order.
  std::vector<Item> items_;
  std::vector<Place> places_;
};

}  // namespace service_streamer::torch_backend
