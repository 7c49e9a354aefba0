#include "service_streamer/torch/runner.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "service_streamer/torch/dtypes.h"
#include "service_streamer/torch/errors.h"

namespace service_streamer::torch_backend {

Runner::Runner(Model& model) : model_(model), collator_(model.signature(), model.options().collate) {}

void Runner::run(std::span<const native::Part> parts, std::span<std::unique_ptr<native::Outputs>> outputs) {
  read(parts);
  std::vector<TensorOutputs*> made(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto own = std::make_unique<TensorOutputs>();
    made[i] = own.get();
    outputs[i] = std::move(own);
  }
  while (pick_group()) {
    const std::shared_ptr<const RunResult> result = run_group();
    for (std::size_t row = 0; row < group_places_.size(); ++row) {
      const Place& place = group_places_[row];
      auto& slices = made[place.part]->slices;
      const bool goes_on =
          !slices.empty() && slices.back().run == result && place.index == slices.back().begin + slices.back().count;
      if (goes_on) {
        ++slices.back().count;
      } else {
        slices.push_back({.run = result, .row = static_cast<std::int64_t>(row), .begin = place.index, .count = 1});
      }
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
    extents.push_back(std::clamp(extent, symbol.least, symbol.most));
  }
  const native::Number zero{};
  std::vector<native::TensorView> views;
  for (std::size_t i = 0; i < signature.inputs.size(); ++i) {
    if (std::cmp_equal(i, collate.mask) || std::cmp_equal(i, collate.lengths)) continue;
    const native::TensorSpec& input = signature.inputs[i];
    native::TensorView& view = views.emplace_back();
    view.dtype = input.dtype;
    for (const native::Dimension& dimension : input.dimensions) {
      const bool fixed = dimension.symbol == native::Dimension::kFixed;
      view.sizes.push_back(fixed ? dimension.size : extents[static_cast<std::size_t>(dimension.symbol)]);
      view.strides.push_back(0);  // everywhere the same zero
    }
    view.data = zero.data();
  }
  group_.assign(items, {.tensors = views.data(), .extents = extents.data()});
  run_group();
  group_.clear();
}

void Runner::read(std::span<const native::Part> parts) {
  items_.clear();
  places_.clear();
  const std::size_t tensors = collator_.tensors_per_item();
  const std::size_t symbols = model_.signature().symbols.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& items = static_cast<const native::TensorItems&>(*parts[i].items);
    for (std::uint32_t index = 0; index < parts[i].count; ++index) {
      const std::size_t item = parts[i].begin + index;
      items_.push_back(
          {.tensors = items.views.data() + item * tensors, .extents = items.extents.data() + item * symbols});
      places_.push_back({.part = i, .index = index});
    }
  }
}

// The oldest item that was not run yet, and all that fit with it. False: there is none.
bool Runner::pick_group() {
  group_.clear();
  group_places_.clear();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (group_.empty() || collator_.fit(group_.front(), items_[i])) {
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
    const c10::AutoGradMode no_gradients(false);
    std::vector<at::Tensor> inputs;
    for (const native::Collator::Tensor& tensor : collator_.collate(group_)) {
      rows_ = tensor.sizes[0];
      inputs.push_back(at::from_blob(tensor.data, c10::IntArrayRef(tensor.sizes.values().data(), tensor.sizes.rank()),
                                     at::TensorOptions().dtype(scalar_type_of(tensor.dtype))));
    }
    result->tensors = model_.program().run(std::move(inputs));
  });
  const std::size_t wanted = model_.signature().outputs.size();
  if (wanted != 0 && result->tensors.size() != wanted) {
    throw native::RunError(native::Fault::kModel, "the model returned " + std::to_string(result->tensors.size()) +
                                                      " tensors, its signature has " + std::to_string(wanted));
  }
  for (at::Tensor& tensor : result->tensors) tensor = checked(std::move(tensor));
  if (!model_.trims().empty()) {
    result->padded.assign(collator_.extents().begin(), collator_.extents().end());
    for (const Item& item : group_) {
      result->extents.emplace_back(item.extents, item.extents + result->padded.size());
    }
  }
  return result;
}

// An output that is also an input of the model lies where the next batch will.
at::Tensor Runner::checked(at::Tensor output) const {
  if (output.dim() == 0 || output.size(0) != rows_) {
    native::RunError error(native::Fault::kOutputs, "an output of the model has no row for each item");
    error.expected = rows_;
    error.received = output.dim() == 0 ? 0 : output.size(0);
    throw error;
  }
  if (output.has_storage() && collator_.holds(output.storage().data())) return output.clone();
  return output;
}

}  // namespace service_streamer::torch_backend
