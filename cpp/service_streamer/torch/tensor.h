#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "service_streamer/native/tensor.h"
#include "service_streamer/torch/shims.h"

namespace service_streamer::torch_backend {

// "cpu", or a GPU like "cuda:1".
struct TensorDevice {
  static constexpr std::int32_t kCpu = -1;

  std::int32_t gpu = kCpu;  // the number of the GPU

  // Throws std::invalid_argument for other names.
  static TensorDevice named(std::string_view name);

  bool is_cpu() const { return gpu == kCpu; }
  std::string str() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(gpu); }
  bool operator==(const TensorDevice&) const = default;
};

// A reference to a tensor of torch, or to none. Methods throw std::runtime_error with what torch says. Sizes and
// strides are in elements.
class Tensor {
 public:
  using Sizes = std::span<const std::int64_t>;

  Tensor() = default;
  explicit Tensor(TensorHandle owned) : handle_(owned) {}
  ~Tensor();
  Tensor(const Tensor& other);  // the same tensor
  Tensor(Tensor&& other) noexcept : handle_(other.release()) {}
  Tensor& operator=(Tensor other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  // A contiguous tensor with undefined contents. `pinned`: in host memory that a GPU can read.
  static Tensor empty(Sizes sizes, native::Dtype dtype, TensorDevice device, bool pinned = false);
  static Tensor empty_bytes(std::size_t count, TensorDevice device, bool pinned = false);

  // A tensor that refers to existing memory and does not own it.
  static Tensor at(const std::byte* data, native::Dtype dtype, const native::Shape& sizes, TensorDevice device);
  static Tensor at(const native::TensorView& view, TensorDevice device);
  static Tensor bytes_at(const std::byte* data, std::size_t count, TensorDevice device);

  std::byte* data() const;
  const std::byte* storage() const;  // where the memory begins that it shares with its views
  Sizes sizes() const;
  Sizes strides() const;
  std::int64_t rank() const;
  std::int64_t size(std::int64_t dimension) const { return sizes()[static_cast<std::size_t>(dimension)]; }
  std::size_t bytes() const;
  TensorDevice device() const;
  bool is_complex() const;

  // Views of the same memory.
  Tensor select(std::int64_t row) const;  // without the first dimension
  Tensor narrow(std::int64_t dimension, std::int64_t begin, std::int64_t size) const;
  Tensor view(Sizes sizes, Sizes strides, std::int64_t offset) const;  // offset from the first element, in elements

  Tensor clone() const;  // with the numbers that they stand for, if they are conjugated
  Tensor contiguous_on(TensorDevice device, bool non_blocking = false) const;  // itself if it is that already
  Tensor empty_like(Sizes sizes, TensorDevice device) const;                   // of the same type
  void copy(const Tensor& from, bool non_blocking = false);                    // `from` is broadcast
  void zero();

  TensorHandle handle() const { return handle_; }
  TensorHandle release() { return std::exchange(handle_, nullptr); }

 private:
  std::int32_t torch_dtype() const;
  bool is_contiguous() const;

  TensorHandle handle_ = nullptr;
};

// The bytes of an element type of torch (c10::ScalarType) are the same in all versions.
std::int32_t torch_dtype_of(native::Dtype dtype);

}  // namespace service_streamer::torch_backend
