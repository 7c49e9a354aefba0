#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "service_streamer/native/collate.h"
#include "service_streamer/native/device.h"
#include "service_streamer/native/phases.h"

namespace service_streamer::native {

// One run of a group of items on a device. The subclass knows the library: it starts the computation and takes the
// outputs. All methods are called by the thread that uses the Pipeline.
class DeviceRun {
 public:
  using Bytes = std::span<const std::byte>;

  virtual ~DeviceRun() = default;

  // Set before the launch.
  bool outputs_stay_on_device = false;
  std::shared_ptr<PhaseLog> phases;  // see Runner

  // Enqueues the model's work on kCompute and does not wait. The inputs are on the device. Returns the outputs, also on
  // the device; their memory must stay until collect() or the destructor.
  virtual std::vector<Bytes> compute(std::span<const Collator::Tensor> inputs) = 0;

  // Called when the run is done. `outputs` are in host memory that is reused after the call. Empty if they stay on the
  // device.
  virtual void collect(std::span<const Bytes> outputs) = 0;

 private:
  friend class Slot;
  friend class Pipeline;

  bool in_flight_ = false;
  std::exception_ptr failure_;  // of the run, until finish() throws it
};

class Slot;

// The runs that a worker has in flight on its device. While one run is computed, the inputs of the next are collated
// and copied, and the outputs of the previous one are copied back. Events order the work of different streams:
//
//   host       collate n+1 ─┐
//   kCopyIn                 └▶ copy or gather n+1 ── copied_in ─┐
//   kCompute   model n ── computed ─┐                           └▶ model n+1
//   kCopyOut   outputs of n-1       └▶ outputs of n ── copied_out ─▶ read by the host
//
// Each run uses one Slot; the slots are used in turn. The host waits once per run, for its last event. Only then is the
// memory of the slot reused.
//
// Used by one thread at a time. Each run must be finished or abandoned before the run or the Pipeline is destroyed.
class Pipeline {
 public:
  Pipeline(std::unique_ptr<Device> device, const Signature& signature, const CollateOptions& options,
           std::size_t slots);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Collates the items, which must fit together, and enqueues their run. Blocks only if all slots are in use, until the
  // oldest run is done. The memory of the items must stay until this run is done. If it throws, the run is not in
  // flight.
  void launch(std::span<const Collator::Item> items, DeviceRun& run);

  // Blocks until this run and all earlier ones are done. Throws the error of this run, from the device or from
  // collect().
  void finish(DeviceRun& run);

  // The same, but drops the error of the run.
  void abandon(DeviceRun& run) noexcept;

  Device& device() { return *device_; }

 private:
  const std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::size_t next_ = 0;  // the slot of the next run; when all are in use, that of the oldest
};

}  // namespace service_streamer::native
