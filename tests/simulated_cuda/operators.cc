// The operators of the simulated GPUs. Copies, fill, addition and multiplication are enqueued on the stream, as with CUDA,
// so models made of them reveal missing synchronization. All other operators wait for the stream and run on the CPU.

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/add.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "memory.h"
#include "streams.h"

namespace simulated_cuda {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

// A tensor without a reference to its memory, for jobs of a stream. A GPU does not keep memory alive either.
class UnownedTensor {
 public:
  explicit UnownedTensor(const at::Tensor& tensor)
      : data_(tensor.is_cuda() ? within_device(tensor.data_ptr(), tensor.device()) : tensor.data_ptr()),
        sizes_(tensor.sizes().vec()),
        strides_(tensor.strides().vec()),
        dtype_(tensor.scalar_type()),
        conjugated_(tensor.is_conj()) {}

  at::Tensor tensor() const {
    at::Tensor tensor = at::from_blob(data_, sizes_, strides_, at::TensorOptions().dtype(dtype_));
    tensor._set_conj(conjugated_);
    return tensor;
  }

 private:
  void* data_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
  at::ScalarType dtype_;
  bool conjugated_;
};

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                 std::optional<at::Device> device, std::optional<bool> /*pin*/,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(or_current(device.value_or(c10::kCUDA)));
  return at::detail::empty_generic(sizes, &device_memory(), kKeys, dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                         std::optional<bool> /*pin*/) {
  const c10::DeviceGuard guard(or_current(device.value_or(c10::kCUDA)));
  return at::detail::empty_strided_generic(sizes, strides, &device_memory(), kKeys, dtype.value_or(at::kFloat));
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.numel() == 0) return self;
  const at::Tensor from = source.expand_as(self);
  const c10::Device device = from.is_cuda() ? from.device() : self.device();
  Stream& stream = current(device);
  stream.enqueue([to = UnownedTensor(self), from = UnownedTensor(from)] { to.tensor().copy_(from.tensor()); });
  const at::Tensor& host = from.is_cuda() ? self : from;
  if (host.is_cuda() && host.device() == device) return self;  // both are on the device
  if (non_blocking && !host.is_cuda() && is_pinned(host.data_ptr())) {
    record_pinned(host.storage().data_ptr().get_context(), host.data_ptr(), current_stream(device));
  } else {
    stream.record_point()->wait();
  }
  return self;
}

const at::Tensor& resize_storage(const at::Tensor& self, at::IntArrayRef sizes,
                                 std::optional<at::MemoryFormat> /*format*/) {
  auto* const impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  const std::size_t bytes = static_cast<std::size_t>(self.numel()) * self.dtype().itemsize();
  c10::StorageImpl* const storage = impl->storage().unsafeGetStorageImpl();
  if (storage->nbytes() < bytes) {
    const c10::DeviceGuard guard(self.device());
    c10::DataPtr larger = device_memory().allocate(bytes);
    current(self.device())
        .enqueue([to = within_device(larger.get(), self.device()), count = storage->nbytes(),
                  from = within_device(storage->data(), self.device())] {
          if (count > 0) std::memcpy(to, from, count);
        });
    storage->set_data_ptr(std::move(larger));
    storage->set_nbytes(bytes);
  }
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::Tensor self = to;
  if (self.sizes() != from.sizes()) resize_storage(self, from.sizes(), std::nullopt);
  return copy(self, from, false);
}

// Tensors without dimensions may be on any device.
void check_one_device(const std::vector<at::Tensor>& tensors) {
  std::optional<at::Device> device;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.dim() == 0) continue;
    TORCH_CHECK(device.value_or(tensor.device()) == tensor.device(), "Expected all tensors to be on the same device");
    device = tensor.device();
  }
}

// Applies a binary operator element by element on the stream.
template <typename Operator>
at::Tensor each(const at::Tensor& a, const at::Tensor& b, Operator apply) {
  check_one_device({a, b});
  const at::Tensor& like = a.is_cuda() ? a : b;
  at::Tensor to = at::empty(at::infer_size(a.sizes(), b.sizes()), like.options().dtype(at::result_type(a, b)));
  // A scalar tensor on the host is captured by the job.
  const auto read = [](const at::Tensor& tensor) -> std::function<at::Tensor()> {
    if (tensor.is_cuda()) return [numbers = UnownedTensor(tensor)] { return numbers.tensor(); };
    return [tensor] { return tensor; };
  };
  current(like.device()).enqueue([to = UnownedTensor(to), a = read(a), b = read(b), apply] {
    to.tensor().copy_(apply(a(), b()));
  });
  return to;
}

at::Tensor add(const at::Tensor& a, const at::Tensor& b, const at::Scalar& factor) {
  return each(a, b, [factor](const at::Tensor& x, const at::Tensor& y) { return at::add(x, y, factor); });
}

at::Tensor mul(const at::Tensor& a, const at::Tensor& b) {
  return each(a, b, [](const at::Tensor& x, const at::Tensor& y) { return at::mul(x, y); });
}

at::Tensor& fill(at::Tensor& self, const at::Scalar& value) {
  current(self.device()).enqueue([to = UnownedTensor(self), value] { to.tensor().fill_(value); });
  return self;
}

at::Tensor& zero(at::Tensor& self) {
  return fill(self, 0);
}

void record(at::Tensor& self, c10::Stream stream) {
  record_stream(self.storage().data_ptr(), stream);
}

void compute_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::vector<at::Tensor> given;
  for (const c10::IValue& argument : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (argument.isTensor()) given.push_back(argument.toTensor());
  }
  check_one_device(given);
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&compute_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("resize_", resize_storage);
  library.impl("copy_", copy);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("record_stream", record);
  library.impl("fill_.Scalar", fill);
  library.impl("zero_", zero);
  library.impl("add.Tensor", add);
  library.impl("mul.Tensor", mul);
}

}  // namespace
}  // namespace simulated_cuda
