#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "service_streamer/native/collate.h"
#include "service_streamer/native/model.h"
#include "service_streamer/torch/model.h"

namespace service_streamer::torch_backend {

// A Model in the hands of one worker: collates, runs, and shares the outputs out. Its own way to run a group computes in the
// calling thread.
class Runner : public native::Runner {
 public:
  Runner(Model& model, std::size_t device);

  void run(std::span<const native::Part> parts, std::span<std::unique_ptr<native::Outputs>> outputs) override;

  // Runs so many items of zeros, with each size that they are padded to. What the model thinks of zeros does not matter.
  void warm_up(std::size_t items);

 protected:
  using Item = native::Collator::Item;

  // Where the outputs of an item go.
  struct Place {
    std::size_t part = 0;
    std::uint32_t index = 0;  // in the part
  };

  // The groups of a batch, one after the other.
  void read(std::span<const native::Part> parts);
  bool pick_group();
  virtual std::shared_ptr<const RunResult> run_group();

  // Of a group: the tensors of the model for inputs that lie on its device. Throws RunError, also for those without a row for each
  // item.
  std::vector<at::Tensor> compute(std::span<const native::Collator::Tensor> inputs) const;
  void note_extents(RunResult& result) const;  // once its sizes are arranged

  // Gives everybody in a group his rows.
  static std::vector<TensorOutputs*> open(std::span<std::unique_ptr<native::Outputs>> outputs);
  static void share_out(const std::shared_ptr<const RunResult>& result, std::span<const Place> places,
                        std::span<TensorOutputs* const> outputs);

  Model& model_;
  const std::size_t device_;  // by number among those of the model
  native::Collator collator_;
  std::vector<Item> group_;
  std::vector<Place> group_places_;

 private:
  void warm_up(std::size_t items, std::int64_t extent);

  // Of the run under way: what has not been run yet, in order.
  std::vector<Item> items_;
  std::vector<Place> places_;
};

}  // namespace service_streamer::torch_backend
