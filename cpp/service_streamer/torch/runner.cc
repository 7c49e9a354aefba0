#include "service_streamer/torch/runner.h"

#include <algorithm>
#include <utility>

#include "service_streamer/torch/errors.h"

namespace service_streamer::torch_backend {

Runner::Runner(Model& model, std::size_t device)
    : model_(model), device_(device), collator_(model.signature(), model.options().collate) {}

void Runner::run(std::span<const native::ItemRange> ranges, std::span<std::unique_ptr<native::Outputs>> outputs) {
  read(ranges);
  const std::vector<TensorOutputs*> opened = open(outputs);
  while (pick_group()) distribute(run_group(), group_places_, opened);
}

std::vector<TensorOutputs*> Runner::open(std::span<std::unique_ptr<native::Outputs>> outputs) {
  std::vector<TensorOutputs*> opened;
  for (std::unique_ptr<native::Outputs>& each : outputs) {
    auto own = std::make_unique<TensorOutputs>();
    opened.push_back(own.get());
    each = std::move(own);
  }
  return opened;
}

void Runner::distribute(const std::shared_ptr<const RunResult>& result, std::span<const Place> places,
                        std::span<TensorOutputs* const> outputs) {
  for (std::size_t row = 0; row < places.size(); ++row) {
    const Place& place = places[row];
    auto& slices = outputs[place.range]->slices;
    const bool continues =
        !slices.empty() && slices.back().run == result && place.index == slices.back().begin + slices.back().count;
    if (continues) {
      ++slices.back().count;
    } else {
      slices.push_back({.run = result, .row = static_cast<std::int64_t>(row), .begin = place.index, .count = 1});
    }
  }
}

void Runner::warm_up(std::size_t items) {
  const native::CollateOptions& collate = model_.options().collate;
  std::vector<std::int64_t> extents = collate.pad ? collate.pad_to : std::vector<std::int64_t>{};
  if (extents.empty()) extents.push_back(1);
  for (const std::int64_t extent : extents) {
    try {
      warm_up(items, extent);
    } catch (const native::RunError&) {
      continue;
    }
  }
}

void Runner::warm_up(std::size_t items, std::int64_t extent) {
  const native::Signature& signature = model_.signature();
  const native::CollateOptions& collate = model_.options().collate;
  std::vector<std::int64_t> extents;
  for (const native::Symbol& symbol : signature.symbols) {
    extents.push_back(std::clamp(extent, symbol.min, symbol.max));
  }
  const native::Scalar zero{};
  std::vector<native::TensorView> views;
  for (std::size_t i = 0; i < signature.inputs.size(); ++i) {
    if (std::cmp_equal(i, collate.mask) || std::cmp_equal(i, collate.lengths)) continue;
    const native::TensorSpec& input = signature.inputs[i];
    native::TensorView& view = views.emplace_back();
    view.dtype = input.dtype;
    for (const native::Dimension& dimension : input.dimensions) {
      const bool fixed = dimension.symbol == native::Dimension::kFixed;
      view.sizes.push_back(fixed ? dimension.size : extents[static_cast<std::size_t>(dimension.symbol)]);
      view.strides.push_back(0);  // all elements are the same zero
    }
    view.data = zero.data();
  }
  group_.assign(items, {.tensors = views.data(), .extents = extents.data()});
  run_group();
  group_.clear();
}

void Runner::read(std::span<const native::ItemRange> ranges) {
  items_.clear();
  places_.clear();
  const std::size_t tensors = collator_.tensors_per_item();
  const std::size_t symbols = model_.signature().symbols.size();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto& items = static_cast<const native::TensorItems&>(*ranges[i].items);
    for (std::uint32_t index = 0; index < ranges[i].count; ++index) {
      const std::size_t item = ranges[i].begin + index;
      items_.push_back({.tensors = items.views.data() + item * tensors,
                        .extents = items.extents.data() + item * symbols,
                        .ready = items.ready.get()});
      places_.push_back({.range = i, .index = index});
    }
  }
}

bool Runner::pick_group() {
  group_.clear();
  group_places_.clear();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (group_.empty() || collator_.fit_together(group_.front(), items_[i])) {
      group_.push_back(items_[i]);
      group_places_.push_back(places_[i]);
    } else {
      items_[kept] = items_[i];
      places_[kept++] = places_[i];
    }
  }
  items_.resize(kept);
  places_.resize(kept);
  return !group_.empty();
}

std::shared_ptr<const RunResult> Runner::run_group() {
  const auto result = std::make_shared<RunResult>();
  with_run_errors([&] {
    std::span<const native::Collator::Tensor> inputs;
    {
      const native::PhaseRange range(phases.get(), LoggedEvent::Kind::kCollated);
      inputs = collator_.collate(group_);
    }
    const native::PhaseRange range(phases.get(), LoggedEvent::Kind::kComputed);
    result->tensors = compute(inputs);
  });
  // The next batch reuses the memory of the inputs, so an output that is also an input must be copied.
  for (Tensor& tensor : result->tensors) {
    if (collator_.holds(tensor.storage())) tensor = tensor.clone();
  }
  record_extents(*result);
  return result;
}

std::vector<Tensor> Runner::compute(std::span<const native::Collator::Tensor> inputs) const {
  const std::int64_t rows = inputs.front().sizes[0];  // including rows that fill up the batch
  std::vector<Tensor> tensors;
  for (const native::Collator::Tensor& input : inputs) {
    tensors.push_back(Tensor::at(input.data, input.dtype, input.sizes, model_.device(device_)));
  }
  tensors = model_.program(device_).run(std::move(tensors));
  const std::size_t wanted = model_.signature().outputs.size();
  if (wanted != 0 && tensors.size() != wanted) {
    throw native::RunError(native::Fault::kModel, "the model returned " + std::to_string(tensors.size()) +
                                                      " tensors, but its signature has " + std::to_string(wanted));
  }
  for (const Tensor& tensor : tensors) {
    if (tensor.rank() > 0 && tensor.size(0) == rows) continue;
    native::RunError error(native::Fault::kOutputs, "an output of the model does not have one row for each item");
    error.expected = rows;
    error.received = tensor.rank() == 0 ? 0 : tensor.size(0);
    throw error;
  }
  check_trims(tensors);
  return tensors;
}

// Views are made without a check of their bounds.
void Runner::check_trims(std::span<const Tensor> tensors) const {
  for (const Model::Trim& trim : model_.trims()) {
    const Tensor::Sizes sizes = tensors[trim.output].sizes().subspan(1);
    const auto dimension = static_cast<std::size_t>(trim.dimension);
    const std::int64_t wanted = collator_.extents()[trim.symbol];
    if (dimension < sizes.size() && sizes[dimension] >= wanted) continue;
    throw native::RunError(native::Fault::kModel, "output '" + model_.signature().outputs[trim.output].name +
                                                      "' of the model does not have " + std::to_string(wanted) +
                                                      " elements in dimension " + std::to_string(dimension + 1) +
                                                      ", as its signature says");
  }
}

void Runner::record_extents(RunResult& result) const {
  if (model_.trims().empty()) return;
  result.padded.assign(collator_.extents().begin(), collator_.extents().end());
  for (const Item& item : group_) result.extents.emplace_back(item.extents, item.extents + result.padded.size());
}

}  // namespace service_streamer::torch_backend
