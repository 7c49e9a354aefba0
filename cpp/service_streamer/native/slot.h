#pragma once

#include <memory>
#include <span>
#include <vector>

#include "service_streamer/native/collate.h"
#include "service_streamer/native/device.h"
#include "service_streamer/native/pipeline.h"
#include "service_streamer/native/staging.h"

namespace service_streamer::native {

// A slot of a Pipeline: memory on both sides, and events, for one run at a time.
class Slot {
 public:
  Slot(Device& device, const Signature& signature, const CollateOptions& options);

  // The slot must be free. See Pipeline::launch().
  void launch(std::span<const Collator::Item> items, DeviceRun& run);

  // Blocks until the run that has this slot is done, and frees the slot; the run knows how it went. Nothing where it is free.
  void finish() noexcept;

 private:
  void copy_in(std::span<const Collator::Item> items);
  void gather(std::span<const Collator::Item> items);
  void copy_out(std::span<const DeviceRun::Bytes> outputs);
  void synchronize() noexcept;

  Device& device_;
  Collator collator_;
  std::vector<Staging> pinned_;   // of each input
  std::vector<Staging> inputs_;   // the same on the device
  std::vector<Staging> outputs_;  // of each output, pinned
  const std::unique_ptr<Event> copied_in_;
  const std::unique_ptr<Event> computed_;
  const std::unique_ptr<Event> copied_out_;

  DeviceRun* run_ = nullptr;               // in flight; nullptr: the slot is free
  const Event* last_ = nullptr;            // after which it is done
  std::vector<DeviceRun::Bytes> results_;  // of the run, in outputs_
  std::vector<Collator::Tensor> tensors_;
  std::vector<TensorView> rows_;
};

}  // namespace service_streamer::native
