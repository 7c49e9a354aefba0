#include "service_streamer/torch/tensor.h"

#include <array>
#include <charconv>
#include <stdexcept>
#include <vector>

namespace service_streamer::torch_backend {
namespace {

constexpr std::int32_t kCpuType = 0;   // c10::DeviceType::CPU
constexpr std::int32_t kStrided = 0;   // c10::Layout::Strided
constexpr std::int32_t kNoIndex = -1;  // of a device

// In the order of native::Dtype; numbers of c10::ScalarType.
constexpr std::array<std::int32_t, 12> kTypes{11, 0, 1, 2, 3, 4, 5, 15, 6, 7, 9, 10};

std::int32_t type_of(TensorDevice device) {
  return device.is_cpu() ? kCpuType : shims().cuda_type();
}

std::int32_t index_of(TensorDevice device) {
  return device.is_cpu() ? kNoIndex : device.gpu;
}

std::vector<std::int64_t> contiguous_strides(Tensor::Sizes sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i] > 0 ? sizes[i] : 1;
  }
  return strides;
}

Tensor allocate(Tensor::Sizes sizes, std::int32_t dtype, TensorDevice device, bool pinned) {
  const std::vector<std::int64_t> strides = contiguous_strides(sizes);
  const auto allocate = pinned ? shims().empty_pinned : shims().empty;
  TensorHandle made = nullptr;
  check(allocate(static_cast<std::int64_t>(sizes.size()), sizes.data(), strides.data(), dtype, type_of(device),
                 index_of(device), &made));
  return Tensor(made);
}

Tensor refer(const std::byte* data, native::Dtype dtype, Tensor::Sizes sizes, Tensor::Sizes strides,
             TensorDevice device) {
  TensorHandle made = nullptr;
  check(shims().from_memory(const_cast<std::byte*>(data), static_cast<std::int64_t>(sizes.size()), sizes.data(),
                            strides.data(), 0, torch_dtype_of(dtype), type_of(device), index_of(device), &made,
                            kStrided, nullptr, 0));
  if (made == nullptr) check(1);  // torch 2.13 does not return the number of this failure
  return Tensor(made);
}

}  // namespace

std::int32_t torch_dtype_of(native::Dtype dtype) {
  return kTypes[static_cast<std::size_t>(dtype)];
}

TensorDevice TensorDevice::named(std::string_view name) {
  constexpr std::string_view kCuda = "cuda:";
  if (name == "cpu") return {};
  TensorDevice device;
  const char* const end = name.data() + name.size();
  const bool known = name.starts_with(kCuda) &&
                     std::from_chars(name.data() + kCuda.size(), end, device.gpu).ptr == end && device.gpu >= 0;
  if (!known) throw std::invalid_argument("not a device: " + std::string(name));
  return device;
}

Tensor::~Tensor() {
  if (handle_ != nullptr) shims().delete_tensor(handle_);
}

Tensor::Tensor(const Tensor& other) {
  if (other.handle_ != nullptr) check(shims().new_handle(other.handle_, &handle_));
}

Tensor Tensor::empty(Sizes sizes, native::Dtype dtype, TensorDevice device, bool pinned) {
  return allocate(sizes, torch_dtype_of(dtype), device, pinned);
}

Tensor Tensor::empty_bytes(std::size_t count, TensorDevice device, bool pinned) {
  const auto size = static_cast<std::int64_t>(count);
  return empty({&size, 1}, native::Dtype::kUint8, device, pinned);
}

Tensor Tensor::empty_like(Sizes sizes, TensorDevice device) const {
  return allocate(sizes, torch_dtype(), device, false);
}

Tensor Tensor::at(const std::byte* data, native::Dtype dtype, const native::Shape& sizes, TensorDevice device) {
  return refer(data, dtype, sizes.values(), contiguous_strides(sizes.values()), device);
}

Tensor Tensor::at(const native::TensorView& view, TensorDevice device) {
  native::Shape strides;
  for (const std::int64_t stride : view.strides.values()) {
    strides.push_back(stride / static_cast<std::int64_t>(native::size_of(view.dtype)));
  }
  return refer(view.data, view.dtype, view.sizes.values(), strides.values(), device);
}

Tensor Tensor::bytes_at(const std::byte* data, std::size_t count, TensorDevice device) {
  return at(data, native::Dtype::kUint8, {static_cast<std::int64_t>(count)}, device);
}

std::byte* Tensor::data() const {
  void* data = nullptr;
  check(shims().data(handle_, &data));
  return static_cast<std::byte*>(data);
}

const std::byte* Tensor::storage() const {
  std::int64_t offset = 0;
  check(shims().offset(handle_, &offset));
  return data() - static_cast<std::size_t>(offset) * shims().element_size(torch_dtype());
}

std::int64_t Tensor::rank() const {
  std::int64_t rank = 0;
  check(shims().rank(handle_, &rank));
  return rank;
}

Tensor::Sizes Tensor::sizes() const {
  std::int64_t* sizes = nullptr;
  check(shims().sizes(handle_, &sizes));
  return {sizes, static_cast<std::size_t>(rank())};
}

Tensor::Sizes Tensor::strides() const {
  std::int64_t* strides = nullptr;
  check(shims().strides(handle_, &strides));
  return {strides, static_cast<std::size_t>(rank())};
}

std::size_t Tensor::bytes() const {
  std::size_t bytes = shims().element_size(torch_dtype());
  for (const std::int64_t size : sizes()) bytes *= static_cast<std::size_t>(size);
  return bytes;
}

TensorDevice Tensor::device() const {
  std::int32_t type = 0;
  check(shims().device_type(handle_, &type));
  TensorDevice device;
  if (type != kCpuType) check(shims().device_index(handle_, &device.gpu));
  return device;
}

bool Tensor::is_complex() const {
  const std::int32_t dtype = torch_dtype();
  return dtype == torch_dtype_of(native::Dtype::kComplex64) || dtype == torch_dtype_of(native::Dtype::kComplex128);
}

std::int32_t Tensor::torch_dtype() const {
  std::int32_t dtype = 0;
  check(shims().dtype(handle_, &dtype));
  return dtype;
}

bool Tensor::is_contiguous() const {
  bool contiguous = false;
  check(shims().is_contiguous(handle_, &contiguous));
  return contiguous;
}

Tensor Tensor::view(Sizes sizes, Sizes strides, std::int64_t offset) const {
  TensorHandle made = nullptr;
  check(shims().view(handle_, static_cast<std::int64_t>(sizes.size()), sizes.data(), strides.data(), offset, &made));
  return Tensor(made);
}

Tensor Tensor::select(std::int64_t row) const {
  const Sizes strides = this->strides();
  return view(sizes().subspan(1), strides.subspan(1), row * strides[0]);
}

Tensor Tensor::narrow(std::int64_t dimension, std::int64_t begin, std::int64_t size) const {
  const Sizes strides = this->strides();
  const Sizes whole = sizes();
  std::vector<std::int64_t> sizes(whole.begin(), whole.end());
  sizes[static_cast<std::size_t>(dimension)] = size;
  return view(sizes, strides, begin * strides[static_cast<std::size_t>(dimension)]);
}

Tensor Tensor::clone() const {
  TensorHandle made = nullptr;
  check(shims().clone(handle_, &made));
  return Tensor(made);
}

Tensor Tensor::contiguous_on(TensorDevice device, bool non_blocking) const {
  if (this->device() == device && is_contiguous()) return *this;
  Tensor copied = allocate(sizes(), torch_dtype(), device, false);
  copied.copy(*this, non_blocking);
  return copied;
}

void Tensor::copy(const Tensor& from, bool non_blocking) {
  check(shims().copy(handle_, from.handle_, non_blocking ? 1 : 0));
}

void Tensor::zero() {
  check(shims().zero(handle_));
}

}  // namespace service_streamer::torch_backend
