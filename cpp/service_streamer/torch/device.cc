#include "service_streamer/torch/device.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "service_streamer/cuda/gather.h"
#include "service_streamer/torch/dtypes.h"

namespace service_streamer::torch_backend {
namespace {

using c10::impl::VirtualGuardImpl;

// The memory of a tensor, which the returned pointer keeps alive.
std::shared_ptr<std::byte> memory_of(at::Tensor tensor) {
  auto* data = static_cast<std::byte*>(tensor.mutable_data_ptr());
  return {std::make_shared<at::Tensor>(std::move(tensor)), data};
}

c10::IntArrayRef sizes_of(const native::Shape& shape) {
  return {shape.values().data(), shape.rank()};
}

c10::Stream stream_for(c10::Device device) {
  const VirtualGuardImpl impl(device.type());
  return device.is_cpu() ? impl.getStream(device) : impl.getStreamFromGlobalPool(device);
}

at::Tensor bytes_at(const std::byte* data, std::size_t bytes, c10::Device device) {
  return tensor_at(data, native::Dtype::kUint8, {static_cast<std::int64_t>(bytes)}, device);
}

}  // namespace

// --- TorchEvent ---

TorchEvent::TorchEvent(c10::DeviceType type) {
  if (type != c10::kCPU) event_.emplace(type);
}

void TorchEvent::record(const c10::Stream& stream) {
  if (event_) event_->record(stream);
}

void TorchEvent::block(const c10::Stream& stream) const {
  if (event_) event_->block(stream);
}

void TorchEvent::synchronize() const {
  if (event_) event_->synchronize();
}

c10::Stream stream_of_this_thread(c10::Device device) {
  return VirtualGuardImpl(device.type()).getStream(device);
}

std::unique_ptr<TorchEvent> event_of_this_thread(c10::Device device) {
  auto event = std::make_unique<TorchEvent>(device.type());
  event->record(stream_of_this_thread(device));
  return event;
}

// --- TorchDevice ---

TorchDevice::TorchDevice(c10::Device device)
    : device_(device), streams_{stream_for(device), stream_for(device), stream_for(device)} {}

std::shared_ptr<std::byte> TorchDevice::allocate_host(std::size_t bytes) {
  const auto options = at::TensorOptions().dtype(at::kByte).pinned_memory(!device_.is_cpu());
  return memory_of(at::empty({static_cast<std::int64_t>(bytes)}, options));
}

// Allocated for kCopyIn, the first stream that uses the memory. torch reuses freed memory in the order of that stream.
std::shared_ptr<std::byte> TorchDevice::allocate(std::size_t bytes) {
  const c10::StreamGuard guard = use(Stream::kCopyIn);
  return memory_of(at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device_)));
}

std::unique_ptr<native::Event> TorchDevice::make_event() {
  return std::make_unique<TorchEvent>(device_.type());
}

void TorchDevice::record(native::Event& event, Stream stream) {
  static_cast<TorchEvent&>(event).record(stream_of(stream));
}

void TorchDevice::wait(Stream stream, const native::Event& event) {
  static_cast<const TorchEvent&>(event).block(stream_of(stream));
}

void TorchDevice::synchronize(const native::Event& event) {
  static_cast<const TorchEvent&>(event).synchronize();
}

void TorchDevice::copy_in(std::byte* to, const std::byte* from, std::size_t bytes) {
  const c10::StreamGuard guard = use(Stream::kCopyIn);
  bytes_at(to, bytes, device_).copy_(bytes_at(from, bytes, c10::kCPU), /*non_blocking=*/true);
}

void TorchDevice::copy_out(std::byte* to, const std::byte* from, std::size_t bytes) {
  const c10::StreamGuard guard = use(Stream::kCopyOut);
  bytes_at(to, bytes, c10::kCPU).copy_(bytes_at(from, bytes, device_), /*non_blocking=*/true);
}

void TorchDevice::gather(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                         native::PadSide side, const native::Scalar& pad) {
  const c10::StreamGuard guard = use(Stream::kCopyIn);
  if (device_.is_cuda() && cuda::has_kernels()) {
    gather_by_kernel(rows, to, side, pad);
  } else {
    gather_row_by_row(rows, to, side, pad);
  }
}

// The descriptions of the rows are copied to the device first. torch keeps the pinned memory until that copy is done.
void TorchDevice::gather_by_kernel(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                                   native::PadSide side, const native::Scalar& pad) {
  const auto bytes = static_cast<std::int64_t>(rows.size() * sizeof(cuda::GatherRow));
  const at::Tensor table = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  auto* const described = static_cast<cuda::GatherRow*>(table.mutable_data_ptr());
  cuda::Gather gather = cuda::describe_gather(rows, to, side, pad, {described, rows.size()});
  const at::Tensor on_device = table.to(device_, /*non_blocking=*/true);
  gather.rows = static_cast<const cuda::GatherRow*>(on_device.const_data_ptr());
  cuda::gather_padded(gather, stream_of(Stream::kCopyIn).native_handle());
}

void TorchDevice::gather_row_by_row(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                                    native::PadSide side, const native::Scalar& pad) {
  const at::Tensor whole = tensor_at(to.data, to.dtype, to.sizes, device_);
  const bool needs_padding = std::ranges::any_of(rows, [&](const native::TensorView& row) {
    return !std::ranges::equal(row.sizes.values(), to.sizes.values().subspan(1));
  });
  if (needs_padding) whole.fill_(tensor_at(pad.data(), to.dtype, {}, c10::kCPU));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    at::Tensor part = whole.select(0, static_cast<std::int64_t>(i));
    for (std::int64_t dimension = 0; dimension < part.dim(); ++dimension) {
      const std::int64_t size = rows[i].sizes[static_cast<std::size_t>(dimension)];
      part = part.narrow(dimension, side == native::PadSide::kLeft ? part.size(dimension) - size : 0, size);
    }
    part.copy_(tensor_at(rows[i], device_), /*non_blocking=*/true);
  }
}

at::Tensor tensor_at(const std::byte* data, native::Dtype dtype, const native::Shape& sizes, c10::Device device) {
  return at::for_blob(const_cast<std::byte*>(data), sizes_of(sizes))
      .options(at::TensorOptions().dtype(scalar_type_of(dtype)).device(device))
      .target_device(device)
      .make_tensor();
}

at::Tensor tensor_at(const native::TensorView& view, c10::Device device) {
  native::Shape strides;
  for (const std::int64_t stride : view.strides.values()) {
    strides.push_back(stride / static_cast<std::int64_t>(native::size_of(view.dtype)));
  }
  return at::for_blob(const_cast<std::byte*>(view.data), sizes_of(view.sizes))
      .strides(sizes_of(strides))
      .options(at::TensorOptions().dtype(scalar_type_of(view.dtype)).device(device))
      .target_device(device)
      .make_tensor();
}

}  // namespace service_streamer::torch_backend
