#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "service_streamer/native/collate.h"
#include "service_streamer/native/device.h"

namespace service_streamer::native {

// A group of items on its way through a device, to those who know the library: they have it compute, and get the outputs.
class DeviceRun {
 public:
  using Bytes = std::span<const std::byte>;

  virtual ~DeviceRun() = default;

  bool outputs_stay = false;  // on the device, for their caller; set before it is launched

  // Gives kCompute the model's work on these inputs, which lie on the device, and waits for none of it. Returns the outputs there;
  // their memory must stay until collect() or the destructor.
  virtual std::vector<Bytes> compute(std::span<const Collator::Tensor> inputs) = 0;

  // All is done. The outputs, in the host's memory until this returns; nothing where they stay on the device.
  virtual void collect(std::span<const Bytes> outputs) = 0;

 private:
  friend class Flight;
  friend class Pipeline;

  bool under_way_ = false;
  std::exception_ptr failure_;  // since it was launched
};

class Flight;

// What a worker has under way on its device. Groups run one after the other, but the inputs of one are collated and copied while
// another is computed and the outputs of a third come back:
//
//   host       collate n+1 into pinned memory
//   kCopyIn    ready ─▶ copy or gather n+1 ─▶ copied
//   kCompute                                  copied ─▶ model n ─▶ computed
//   kCopyOut                                                       computed ─▶ outputs of n-1 ─▶ landed
//
// Each group has one of a ring of places, whose memory is used again by the group that has it next, after the host has waited for
// the last event of this one: once per group. Between the streams nobody waits but they themselves.
//
// Used by the worker's thread alone. The runs must be landed before they go, and before this does.
class Pipeline {
 public:
  Pipeline(std::unique_ptr<Device> device, const Signature& signature, const CollateOptions& options,
           std::size_t places);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Collates the items, all of which fit, and has the device run them. Blocks only where all places are taken, until the oldest
  // group has landed. The memory of the items must stay until this one has. Throws what went wrong; then nothing is under way.
  void launch(std::span<const Collator::Item> items, DeviceRun& run);

  // Blocks until it, and all launched before it, are done. Throws what went wrong with it, on the device or in collect().
  void land(DeviceRun& run);

  // The same for one whose outcome nobody wants.
  void abandon(DeviceRun& run) noexcept;

  Device& device() { return *device_; }

 private:
  const std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Flight>> places_;
  std::size_t next_ = 0;  // place, which is also that of the oldest group, once all were taken
};

}  // namespace service_streamer::native
