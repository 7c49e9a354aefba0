#pragma once

#include <memory>
#include <span>
#include <vector>

#include "service_streamer/native/collate.h"
#include "service_streamer/native/device.h"
#include "service_streamer/native/pipeline.h"
#include "service_streamer/native/staging.h"

namespace service_streamer::native {

// Memory on the host and on the device, and events, for one run of a Pipeline at a time. Used by the thread of the
// Pipeline.
class Slot {
 public:
  Slot(Device& device, const Signature& signature, const CollateOptions& options);

  // See Pipeline::launch(). The slot must be free.
  void launch(std::span<const Collator::Item> items, DeviceRun& run);

  // Blocks until the run in this slot is done, collects its outputs and frees the slot. An error is stored in the run.
  // Does nothing if the slot is free.
  void finish() noexcept;

 private:
  void copy_in(std::span<const Collator::Item> items, PhaseLog* phases);
  void gather(std::span<const Collator::Item> items);
  void copy_out(std::span<const DeviceRun::Bytes> outputs, PhaseLog* phases);
  void synchronize() noexcept;

  Device& device_;
  Collator collator_;
  std::vector<Staging> pinned_;   // host memory of each input
  std::vector<Staging> inputs_;   // device memory of each input
  std::vector<Staging> outputs_;  // pinned memory of each output
  const std::unique_ptr<Event> copied_in_;
  const std::unique_ptr<Event> computed_;
  const std::unique_ptr<Event> copied_out_;

  DeviceRun* run_ = nullptr;               // in flight; nullptr if the slot is free
  const Event* last_ = nullptr;            // the last event of the run
  std::vector<DeviceRun::Bytes> results_;  // the outputs of the run, in outputs_
  std::vector<Collator::Tensor> tensors_;  // the inputs of the run, on the device
  std::vector<TensorView> rows_;
};

}  // namespace service_streamer::native
