#pragma once

#include <memory>
#include <span>
#include <vector>

#include "service_streamer/native/collate.h"
#include "service_streamer/native/device.h"
#include "service_streamer/native/pipeline.h"
#include "service_streamer/native/staging.h"

namespace service_streamer::native {

// A place in a Pipeline, with its memory on both sides.
class Flight {
 public:
  Flight(Device& device, const Signature& signature, const CollateOptions& options);

  // Nothing may be under way in it. See Pipeline::launch().
  void launch(std::span<const Collator::Item> items, DeviceRun& run);

  // Blocks until the run that has this place is done; the run knows how it went. Nothing where it is free.
  void land() noexcept;

 private:
  void move_in(std::span<const Collator::Item> items);
  void gather(std::span<const Collator::Item> items);
  void move_out(std::span<const DeviceRun::Bytes> outputs);
  void settle() noexcept;

  Device& device_;
  Collator collator_;
  std::vector<Staging> pinned_;   // of each input
  std::vector<Staging> inputs_;   // the same on the device
  std::vector<Staging> outputs_;  // of each output, pinned
  const std::unique_ptr<Event> copied_;
  const std::unique_ptr<Event> computed_;
  const std::unique_ptr<Event> landed_;

  DeviceRun* run_ = nullptr;
  const Event* last_ = nullptr;            // after which all is done
  std::vector<DeviceRun::Bytes> results_;  // of the run, in outputs_
  std::vector<Collator::Tensor> tensors_;
  std::vector<TensorView> rows_;
};

}  // namespace service_streamer::native
