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

// A Model in the hands of one worker: collates, runs, and shares the outputs out.
class Runner final : public native::Runner {
 public:
  explicit Runner(Model& model);

  void run(std::span<const native::Part> parts, std::span<std::unique_ptr<native::Outputs>> outputs) override;

  // Runs so many items of zeros, with each size that they are padded to. What the model thinks of zeros does not matter.
  void warm_up(std::size_t items);

 private:
  using Item = native::Collator::Item;

  // Where the outputs of an item go.
  struct Place {
    std::size_t part = 0;
    std::uint32_t index = 0;  // in the part
  };

  void read(std::span<const native::Part> parts);
  void warm_up(std::size_t items, std::int64_t extent);
  bool pick_group();
  std::shared_ptr<const RunResult> run_group();
  at::Tensor checked(at::Tensor output) const;

  Model& model_;
  native::Collator collator_;

  // Of the run under way: what has not been run yet, in order, and the group that is run now.
  std::vector<Item> items_;
  std::vector<Place> places_;
  std::vector<Item> group_;
  std::vector<Place> group_places_;
  std::int64_t rows_ = 0;  // of the last batch, with those that were added
};

}  // namespace service_streamer::torch_backend
