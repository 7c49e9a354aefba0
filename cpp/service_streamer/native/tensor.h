#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "service_streamer/native/model.h"

namespace service_streamer::native {

// Tensors without a library: memory with an element type and a shape.

enum class Dtype : std::uint8_t {
  kBool,
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
};

std::size_t size_of(Dtype dtype);
const char* to_string(Dtype dtype);
// Returns false if no type has this name.
bool from_string(std::string_view name, Dtype& dtype);

constexpr std::size_t kMaxDimensions = 8;

// The sizes or the strides (in bytes) of a tensor.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> values) {
    for (const std::int64_t value : values) push_back(value);
  }

  std::size_t rank() const { return rank_; }
  std::int64_t& operator[](std::size_t i) { return values_[i]; }
  std::int64_t operator[](std::size_t i) const { return values_[i]; }
  void push_back(std::int64_t value) { values_[rank_++] = value; }  // at most kMaxDimensions values
  std::span<const std::int64_t> values() const { return {values_.data(), rank_}; }

  bool operator==(const Shape& other) const;

 private:
  std::array<std::int64_t, kMaxDimensions> values_{};
  std::size_t rank_ = 0;
};

std::string to_string(const Shape& sizes);

// A tensor in memory that it does not own. Strides are in bytes and may be 0 or negative.
struct TensorView {
  const std::byte* data = nullptr;
  Dtype dtype = Dtype::kFloat32;
  Shape sizes;
  Shape strides;
};

// A point in the work of a device; see Device::record().
class Event {
 public:
  virtual ~Event() = default;
};

// The items of a request as tensors. Nothing is copied: the views refer to the caller's objects.
class TensorItems : public Items {
 public:
  std::vector<TensorView> views;      // for each item, its tensors in the order of the model's inputs
  std::vector<std::int64_t> extents;  // for each item, the size of each symbol

  // For items on a device: the event after which their contents are complete. nullptr: the items are in host memory.
  std::unique_ptr<Event> ready;
};

}  // namespace service_streamer::native
