#pragma once

#include <array>
#include <memory>

#include "service_streamer/native/device.h"
#include "service_streamer/torch/tensor.h"

namespace service_streamer::torch_backend {

// A stream of a GPU. The CPU has one too; work on it is done immediately.
struct TorchStream {
  TensorDevice device;
  void* native = nullptr;  // a cudaStream_t

  static TorchStream from_pool(TensorDevice device);
  static TorchStream of_this_thread(TensorDevice device);  // its current stream
};

// Makes a stream and its device the current ones of the calling thread, until it is destroyed.
class UseStream {
 public:
  explicit UseStream(const TorchStream& stream);
  ~UseStream();
  UseStream(const UseStream&) = delete;
  UseStream& operator=(const UseStream&) = delete;

 private:
  void* guard_ = nullptr;
};

// An event of CUDA. On the CPU, where work is done immediately, it does nothing.
class TorchEvent final : public native::Event {
 public:
  TorchEvent() = default;
  ~TorchEvent() override;
  TorchEvent(const TorchEvent&) = delete;
  TorchEvent& operator=(const TorchEvent&) = delete;

  void record(const TorchStream& stream);
  void block(const TorchStream& stream) const;
  void synchronize() const;

 private:
  void* event_ = nullptr;  // made on the device of the first stream
};

// An event after the work that the current stream of the calling thread has been given so far.
std::unique_ptr<TorchEvent> event_of_this_thread(TensorDevice device);

// A device of torch with three streams from torch's pool. The CPU works as well: all work is then done by the calling
// thread, immediately.
class TorchDevice final : public native::Device {
 public:
  explicit TorchDevice(TensorDevice device);

  TensorDevice device() const { return device_; }
  const TorchStream& stream_of(Stream stream) const { return streams_[static_cast<std::size_t>(stream)]; }

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
  void gather_by_kernel(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                        native::PadSide side, const native::Scalar& pad);
  void gather_row_by_row(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                         native::PadSide side, const native::Scalar& pad);

  const TensorDevice device_;
  const std::array<TorchStream, 3> streams_;
};

// The memory of a tensor, which the returned pointer keeps alive.
std::shared_ptr<std::byte> memory_of(Tensor tensor);

}  // namespace service_streamer::torch_backend
