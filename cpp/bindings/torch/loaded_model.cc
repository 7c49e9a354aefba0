#include "bindings/torch/loaded_model.h"

#include <array>
#include <exception>
#include <utility>

#include "bindings/python/deferred_delete.h"
#include "bindings/torch/errors.h"
#include "bindings/torch/item_reader.h"
#include "bindings/torch/without_gil.h"
#include "service_streamer/torch/runner.h"

namespace service_streamer::bindings {

native::ItemsRef LoadedModel::read(PyObject* items) {
  delete_deferred();
  try {
    return read_items(items, *model_);
  } catch (const std::exception& error) {
    if (PyErr_Occurred() == nullptr) set_run_error(error);
    return nullptr;
  }
}

PyObject* LoadedModel::value_of(const std::vector<native::OutputRange>& ranges, bool as_batch) {
  delete_deferred();
  return as_batch ? batch_of(ranges, *model_, form_) : items_of(ranges, *model_, form_);
}

PyObject* LoadedModel::run(PyObject* items, bool as_batch) {
  const native::ItemsRef read_here = read(items);
  if (read_here == nullptr) return nullptr;
  const auto count = static_cast<std::uint32_t>(PyTuple_GET_SIZE(items));
  const native::ItemRange part{.items = read_here.get(), .begin = 0, .count = count};
  std::array<std::unique_ptr<native::Outputs>, 1> outputs;
  try {
    without_gil([&] {
      const std::lock_guard lock(running_);
      if (runner_ == nullptr) runner_ = model_->make_plain_runner(0);  // keeps the intra-op threads of the caller
      runner_->run(std::span(&part, 1), outputs);
    });
  } catch (const std::exception& error) {
    set_run_error(error);
    return nullptr;
  }
  std::vector<native::OutputRange> ranges;
  ranges.push_back({.begin = 0, .count = count, .outputs = std::move(outputs[0])});
  return value_of(ranges, as_batch);
}

}  // namespace service_streamer::bindings
