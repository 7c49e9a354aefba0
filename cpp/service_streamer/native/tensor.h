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

// Tensors as the core sees them, whichever library they come from: bytes with a shape.

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
// False: there is none of that name.
bool from_string(std::string_view name, Dtype& dtype);

constexpr std::size_t kMostDimensions = 8;

// Sizes, or strides in bytes.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> values) {
    for (const std::int64_t value : values) push_back(value);
  }

  std::size_t rank() const { return rank_; }
  std::int64_t& operator[](std::size_t i) { return values_[i]; }
  std::int64_t operator[](std::size_t i) const { return values_[i]; }
  void push_back(std::int64_t value) { values_[rank_++] = value; }  // up to kMostDimensions
  std::span<const std::int64_t> values() const { return {values_.data(), rank_}; }

  bool operator==(const Shape& other) const;

 private:
  std::array<std::int64_t, kMostDimensions> values_{};
  std::size_t rank_ = 0;
};

std::string to_string(const Shape& sizes);

// Somebody else's numbers.
struct TensorView {
  const std::byte* data = nullptr;
  Dtype dtype = Dtype::kFloat32;
  Shape sizes;
  Shape strides;
};

// A point in what a device was given to do.
class Event {
 public:
  virtual ~Event() = default;
};

// The items of a request as tensors: for each item those that its caller gives, in the order of the model's inputs, the sizes of
// the dimensions that may vary, and its key where the model has keys.
class TensorItems : public Items {
 public:
  std::vector<TensorView> views;
  std::vector<std::int64_t> extents;
  std::vector<std::uint64_t> keys;  // items of different ones are run apart; empty: all have the same

  // Of items that lie on a device: after this they are there. nullptr: they lie in the host's memory.
  std::unique_ptr<Event> ready;
};

}  // namespace service_streamer::native
