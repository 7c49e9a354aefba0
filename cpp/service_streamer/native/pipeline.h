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
  friend class Slot;
  friend class Pipeline;

  bool in_flight_ = false;
  std::exception_ptr availability_;  // since it was launched
};

class Slot;

// What a worker has in flight on its device. Runs follow each other on each stream, but the inputs of one are collated and copied
// while another is computed and the outputs of a third come back; events hold back what needs the stream before:
//
//   host       collate n+1 ─┐
//   kCopyIn                 └▶ copy or gather n+1 ── copied_in ─┐
//   kCompute   model n ── computed ─┐                           └▶ model n+1
//   kCopyOut   outputs of n-1       └▶ outputs of n ── copied_out ─▶ read by the host
//
// Each run has one of a ring of slots. The memory of a slot is used again by the run that has it next, after the host has waited
// for the last event of this one: once per run. Between the streams nobody waits but they themselves.
//
// By one thread at a time. Runs must be finished or abandoned before they go, and before this does.
class Pipeline {
 public:
  Pipeline(std::unique_ptr<Device> device, const Signature& signature, const CollateOptions& options,
           std::size_t slots);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Collates the items, all of which fit, and has the device run them. Waits for the device only where all slots are taken, until
  // the oldest run is done. The memory of the items must stay until this one is. Throws what went wrong; then it is not in flight.
  void launch(std::span<const Collator::Item> items, DeviceRun& run);

  // Blocks until it, and all launched before it, are done. Throws what went wrong with it, on the device or in collect().
  void finish(DeviceRun& run);

  // The same for one whose outcome nobody wants.
  void abandon(DeviceRun& run) noexcept;

  Device& device() { return *device_; }

 private:
  const std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::size_t next_ = 0;  // slot, which is also that of the oldest run, once all were taken
};

}  // namespace service_streamer::native
