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

// Of torch; of its CPU, where all is done at once, it marks nothing.
class TorchEvent final : public native::Event {
 public:
  explicit TorchEvent(c10::DeviceType type);

  void record(const c10::Stream& stream);
  void block(const c10::Stream& stream) const;
  void synchronize() const;

 private:
  std::optional<c10::Event> event_;
};

// The stream that torch uses for what the calling thread has a device do, and an event after what it was given until now.
c10::Stream stream_of_this_thread(c10::Device device);
std::unique_ptr<TorchEvent> event_of_this_thread(c10::Device device);

// A device of torch with three streams from its pool, by torch's own interface to devices, which needs none of their headers. The
// CPU is one as well: there is nothing beside the calling thread then, so that whatever is given is done at once.
class TorchDevice final : public native::Device {
 public:
  explicit TorchDevice(c10::Device device);

  c10::Device device() const { return device_; }

  // What the calling thread gives the device until this goes is for one of the streams.
  c10::StreamGuard use(Stream stream) const { return c10::StreamGuard(stream_of(stream)); }

  std::shared_ptr<std::byte> allocate_host(std::size_t bytes) override;
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  std::unique_ptr<native::Event> make_event() override;
  void record(native::Event& event, Stream stream) override;
  void wait(Stream stream, const native::Event& event) override;
  void synchronize(const native::Event& event) override;
  void copy_in(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void gather(std::span<const native::TensorView> rows, const native::Collator::Tensor& to, native::PadSide side,
              const native::Number& number) override;
  void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) override;

 private:
  const c10::Stream& stream_of(Stream stream) const { return streams_[static_cast<std::size_t>(stream)]; }
  void gather_by_kernel(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                        native::PadSide side, const native::Number& number);
  void gather_row_by_row(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                         native::PadSide side, const native::Number& number);

  const c10::Device device_;
  const std::array<c10::Stream, 3> streams_;
};

// Numbers that lie somewhere, as a tensor.
at::Tensor tensor_at(const std::byte* data, native::Dtype dtype, const native::Shape& sizes, c10::Device device);
at::Tensor tensor_at(const native::TensorView& view, c10::Device device);

}  // namespace service_streamer::torch_backend
