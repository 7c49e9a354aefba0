#include "service_streamer/torch/device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "service_streamer/cuda/gather.h"

namespace service_streamer::torch_backend {
namespace {

constexpr unsigned int kWithoutTiming = 2;  // cudaEventDisableTiming

}  // namespace

// --- streams and events ---

TorchStream TorchStream::from_pool(TensorDevice device) {
  TorchStream stream{.device = device};
  if (!device.is_cpu()) check(cuda_shims().stream_from_pool(/*high_priority=*/false, device.gpu, &stream.native));
  return stream;
}

TorchStream TorchStream::of_this_thread(TensorDevice device) {
  TorchStream stream{.device = device};
  if (!device.is_cpu()) check(cuda_shims().current_stream(device.gpu, &stream.native));
  return stream;
}

UseStream::UseStream(const TorchStream& stream) {
  if (!stream.device.is_cpu()) check(cuda_shims().use_stream(stream.native, stream.device.gpu, &guard_));
}

UseStream::~UseStream() {
  if (guard_ != nullptr) cuda_shims().end_use(guard_);
}

TorchEvent::~TorchEvent() {
  if (event_ != nullptr) cuda_shims().event_destroy(event_);
}

void TorchEvent::record(const TorchStream& stream) {
  if (stream.device.is_cpu()) return;
  const UseStream use(stream);
  if (event_ == nullptr) check_cuda(cuda_shims().event_create(&event_, kWithoutTiming));
  check_cuda(cuda_shims().event_record(event_, stream.native));
}

void TorchEvent::block(const TorchStream& stream) const {
  if (event_ == nullptr) return;
  const UseStream use(stream);
  check_cuda(cuda_shims().stream_wait(stream.native, event_, 0));
}

void TorchEvent::synchronize() const {
  if (event_ != nullptr) check_cuda(cuda_shims().event_synchronize(event_));
}

std::unique_ptr<TorchEvent> event_of_this_thread(TensorDevice device) {
  auto event = std::make_unique<TorchEvent>();
  event->record(TorchStream::of_this_thread(device));
  return event;
}

// --- TorchDevice ---

TorchDevice::TorchDevice(TensorDevice device)
    : device_(device),
      streams_{TorchStream::from_pool(device), TorchStream::from_pool(device), TorchStream::from_pool(device)} {}

std::shared_ptr<std::byte> TorchDevice::allocate_host(std::size_t bytes) {
  return memory_of(Tensor::empty_bytes(bytes, {}, /*pinned=*/!device_.is_cpu()));
}

// Allocated for kCopyIn, the first stream that uses the memory. torch reuses freed memory in the order of that stream.
std::shared_ptr<std::byte> TorchDevice::allocate(std::size_t bytes) {
  const UseStream use(stream_of(Stream::kCopyIn));
  return memory_of(Tensor::empty_bytes(bytes, device_));
}

std::unique_ptr<native::Event> TorchDevice::make_event() {
  return std::make_unique<TorchEvent>();
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
  const UseStream use(stream_of(Stream::kCopyIn));
  Tensor::bytes_at(to, bytes, device_).copy(Tensor::bytes_at(from, bytes, {}), /*non_blocking=*/true);
}

void TorchDevice::copy_out(std::byte* to, const std::byte* from, std::size_t bytes) {
  const UseStream use(stream_of(Stream::kCopyOut));
  Tensor::bytes_at(to, bytes, {}).copy(Tensor::bytes_at(from, bytes, device_), /*non_blocking=*/true);
}

void TorchDevice::gather(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                         native::PadSide side, const native::Scalar& pad) {
  const UseStream use(stream_of(Stream::kCopyIn));
  if (!device_.is_cpu() && cuda::has_kernels()) {
    gather_by_kernel(rows, to, side, pad);
  } else {
    gather_row_by_row(rows, to, side, pad);
  }
}

// The descriptions of the rows are copied to the device first. torch keeps the pinned memory until that copy is done.
void TorchDevice::gather_by_kernel(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                                   native::PadSide side, const native::Scalar& pad) {
  const Tensor table = Tensor::empty_bytes(rows.size() * sizeof(cuda::GatherRow), {}, /*pinned=*/true);
  auto* const described = reinterpret_cast<cuda::GatherRow*>(table.data());
  cuda::Gather gather = cuda::describe_gather(rows, to, side, pad, {described, rows.size()});
  const Tensor on_device = table.contiguous_on(device_, /*non_blocking=*/true);
  gather.rows = reinterpret_cast<const cuda::GatherRow*>(on_device.data());
  cuda::gather_padded(gather, stream_of(Stream::kCopyIn).native);
}

void TorchDevice::gather_row_by_row(std::span<const native::TensorView> rows, const native::Collator::Tensor& to,
                                    native::PadSide side, const native::Scalar& pad) {
  Tensor whole = Tensor::at(to.data, to.dtype, to.sizes, device_);
  const bool needs_padding = std::ranges::any_of(rows, [&](const native::TensorView& row) {
    return !std::ranges::equal(row.sizes.values(), to.sizes.values().subspan(1));
  });
  // The number goes to the device first: torch would send a copy for each element.
  if (needs_padding) whole.copy(Tensor::at(pad.data(), to.dtype, {}, {}).contiguous_on(device_));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Tensor part = whole.select(static_cast<std::int64_t>(i));
    for (std::int64_t dimension = 0; dimension < part.rank(); ++dimension) {
      const std::int64_t size = rows[i].sizes[static_cast<std::size_t>(dimension)];
      part = part.narrow(dimension, side == native::PadSide::kLeft ? part.size(dimension) - size : 0, size);
    }
    part.copy(Tensor::at(rows[i], device_), /*non_blocking=*/true);
  }
}

std::shared_ptr<std::byte> memory_of(Tensor tensor) {
  std::byte* const data = tensor.data();
  return {std::make_shared<Tensor>(std::move(tensor)), data};
}

}  // namespace service_streamer::torch_backend
