#include "service_streamer/native/slot.h"

#include <algorithm>
#include <utility>

#include "service_streamer/native/phases.h"

namespace service_streamer::native {
namespace {

using Kind = LoggedEvent::Kind;
using Stream = Device::Stream;

}  // namespace

Slot::Slot(Device& device, const Signature& signature, const CollateOptions& options)
    : device_(device),
      collator_(signature, options),
      copied_in_(device.make_event()),
      computed_(device.make_event()),
      copied_out_(device.make_event()) {
  for (std::size_t i = 0; i < signature.inputs.size(); ++i) {
    pinned_.emplace_back([&device](std::size_t bytes) { return device.allocate_host(bytes); });
    inputs_.emplace_back([&device](std::size_t bytes) { return device.allocate(bytes); });
  }
}

void Slot::launch(std::span<const Collator::Item> items, DeviceRun& run) {
  results_.clear();
  try {
    copy_in(items, run.phases.get());
    device_.record(*copied_in_, Stream::kCopyIn);
    device_.wait(Stream::kCompute, *copied_in_);
    std::vector<DeviceRun::Bytes> outputs;
    {
      const PhaseRange range(run.phases.get(), Kind::kComputed);
      outputs = run.compute(tensors_);
    }
    device_.record(*computed_, Stream::kCompute);
    last_ = computed_.get();
    if (!run.outputs_stay_on_device) copy_out(outputs, run.phases.get());
  } catch (...) {
    synchronize();
    throw;
  }
  run.in_flight_ = true;
  run.failure_ = nullptr;
  run_ = &run;
}

void Slot::finish() noexcept {
  if (run_ == nullptr) return;
  DeviceRun& run = *std::exchange(run_, nullptr);
  run.in_flight_ = false;
  try {
    {
      const PhaseRange range(run.phases.get(), Kind::kWaited);
      device_.synchronize(*last_);
    }
    const PhaseRange range(run.phases.get(), Kind::kCopiedOut);
    run.collect(results_);
  } catch (const std::exception&) {
    run.failure_ = std::current_exception();
  }
}

// Inputs that were collated or generated on the host are copied. Items that are on the device are gathered there.
void Slot::copy_in(std::span<const Collator::Item> items, PhaseLog* phases) {
  const bool on_device = items.front().ready != nullptr;
  const std::span<const std::size_t> item_inputs = collator_.item_inputs();
  const std::span<Collator::Tensor> host = collator_.arrange(items);
  {
    const PhaseRange range(phases, Kind::kCollated);
    for (std::size_t i = 0; i < host.size(); ++i) {
      const bool gathered = on_device && std::ranges::find(item_inputs, i) != item_inputs.end();
      if (!gathered) host[i].data = pinned_[i].reserve(bytes_of(host[i]));
    }
    collator_.fill(items);
  }
  const PhaseRange range(phases, Kind::kCopiedIn);
  tensors_.assign(host.begin(), host.end());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::size_t bytes = bytes_of(tensors_[i]);
    tensors_[i].data = inputs_[i].reserve(bytes);
    if (host[i].data != nullptr && bytes > 0) device_.copy_in(tensors_[i].data, host[i].data, bytes);
  }
  if (on_device) gather(items);
}

void Slot::gather(std::span<const Collator::Item> items) {
  const Event* known = nullptr;  // all items of a request share one event
  for (const Collator::Item& item : items) {
    if (item.ready != std::exchange(known, item.ready)) device_.wait(Stream::kCopyIn, *item.ready);
  }
  const std::span<const std::size_t> item_inputs = collator_.item_inputs();
  for (std::size_t i = 0; i < item_inputs.size(); ++i) {
    const Collator::Tensor& to = tensors_[item_inputs[i]];
    if (bytes_of(to) == 0) continue;
    rows_.clear();
    for (std::size_t row = 0; std::cmp_less(row, to.sizes[0]); ++row) {
      rows_.push_back(items[std::min(row, items.size() - 1)].tensors[i]);
    }
    device_.gather(rows_, to, collator_.options().side, collator_.options().pad_values[item_inputs[i]]);
  }
}

void Slot::copy_out(std::span<const DeviceRun::Bytes> outputs, PhaseLog* phases) {
  const PhaseRange range(phases, Kind::kCopiedOut);
  device_.wait(Stream::kCopyOut, *computed_);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (i == outputs_.size()) {
      outputs_.emplace_back([this](std::size_t bytes) { return device_.allocate_host(bytes); });
    }
    std::byte* to = outputs_[i].reserve(outputs[i].size());
    if (!outputs[i].empty()) device_.copy_out(to, outputs[i].data(), outputs[i].size());
    results_.emplace_back(to, outputs[i].size());
  }
  device_.record(*copied_out_, Stream::kCopyOut);
  last_ = copied_out_.get();
}

// After a launch that failed half-way: waits until the device no longer uses the memory of the items. An error can be
// ignored here, because a device that reports one has stopped.
void Slot::synchronize() noexcept {
  for (const Stream stream : {Stream::kCopyIn, Stream::kCompute, Stream::kCopyOut}) {
    try {
      device_.record(*copied_out_, stream);
      device_.synchronize(*copied_out_);
    } catch (const std::exception&) {
      continue;
    }
  }
}

}  // namespace service_streamer::native
