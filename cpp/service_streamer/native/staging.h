#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace service_streamer::native {

// Allocates memory, which the last reference frees. Throws std::bad_alloc.
using Allocate = std::function<std::shared_ptr<std::byte>(std::size_t bytes)>;

// A buffer that is reused batch after batch, because fresh memory costs page faults. Used by one thread at a time.
class Staging {
 public:
  static constexpr std::size_t kAlignment = 64;  // compiled models expect it; of the default allocator

  Staging();  // uses ordinary host memory
  explicit Staging(Allocate allocate);

  // Returns at least this many bytes with undefined contents, valid until the next call. Throws what `allocate` throws.
  std::byte* reserve(std::size_t bytes);

  // True if the address is in the buffer.
  bool holds(const void* address) const;

 private:
  Allocate allocate_;
  std::shared_ptr<std::byte> data_;
  std::size_t capacity_ = 0;
};

}  // namespace service_streamer::native
