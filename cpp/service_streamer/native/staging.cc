#include "service_streamer/native/staging.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace service_streamer::native {
namespace {

std::shared_ptr<std::byte> allocate_ordinary(std::size_t bytes) {
  void* data = std::aligned_alloc(Staging::kAlignment, bytes);
  if (data == nullptr) throw std::bad_alloc();
  return {static_cast<std::byte*>(data), [](std::byte* old) { std::free(old); }};
}

}  // namespace

Staging::Staging() : Staging(allocate_ordinary) {}

Staging::Staging(Allocate allocate) : allocate_(std::move(allocate)) {}

// Grows by at least half, so that slowly growing batches do not allocate every time. The old buffer is freed first.
std::byte* Staging::reserve(std::size_t bytes) {
  if (bytes > capacity_ || data_ == nullptr) {
    const std::size_t wanted = std::max({bytes, capacity_ + capacity_ / 2, kAlignment});
    const std::size_t rounded = (wanted + kAlignment - 1) / kAlignment * kAlignment;
    data_.reset();
    capacity_ = 0;
    data_ = allocate_(rounded);
    capacity_ = rounded;
  }
  return data_.get();
}

bool Staging::holds(const void* address) const {
  const std::less<const void*> before;
  return data_ != nullptr && !before(address, data_.get()) && before(address, data_.get() + capacity_);
}

}  // namespace service_streamer::native
