#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <memory>
#include <optional>

#include "service_streamer/native/device.h"

namespace service_streamer::torch_backend {

// An event of torch. On the CPU, where work is done immediately, it does nothing.
class TorchEvent final : public native::Event {
 public:
  explicit TorchEvent(c10::DeviceType type);

  void record(const c10::Stream& stream);
  void block(const c10::Stream& stream) const;
  void synchronize() const;

 private:
  std::optional<c10::Event> event_;
};

// The current stream of the calling thread on a device, and an event after the work that this stream has been given so
// far.
c10::Stream stream_of_this_thread(c10::Device device);
std::unique_ptr<TorchEvent> event_of_this_thread(c10::Device device);

// A device of torch with three streams from torch's pool. It uses torch's virtual device interface, which needs no CUDA
// headers. The CPU works as well: all work is then done by the calling thread, immediately.
class TorchDevice final : public native::Device {
 public:
  explicit TorchDevice(c10::Device device);

  c10::Device device() const { return device_; }

  // Makes the stream the current one of the calling thread, until the guard is destroyed.
  c10::StreamGuard use(Stream stream) const { return c10::StreamGuard(stream_of(stream)); }

  std::shared_ptr<std::byte> allocate_host(std::size_t bytes) override;
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  std::unique_ptr<native::Event> make_event() override;
  void record(native::Event& event, Stream stream) override;
  void wait(Stream stream, const native::Event& event) override;
  void synchronize(const native::Event& event) override;
  void copy_in(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void gather(std::span<const native::TensorView> rows, const native::Collator::Tensor& to, native::PadSide side,
              const native::Scalar& pad) override;
  void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) override;

 private:
  const c10::Stream& stream_of(Stream stream) const { return streams_[static_cast<std::size_t>(stream)]; }
  void gather_by_kernel(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                        native::PadSide side, const native::Scalar& pad);
  void gather_row_by_row(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                         native::PadSide side, const native::Scalar& pad);

  const c10::Device device_;
  const std::array<c10::Stream, 3> streams_;
};

// A tensor that refers to existing memory and does not own it.
at::Tensor tensor_at(const std::byte* data, native::Dtype dtype, const native::Shape& sizes, c10::Device device);
at::Tensor tensor_at(const native::TensorView& view, c10::Device device);

}  // namespace service_streamer::torch_backend
