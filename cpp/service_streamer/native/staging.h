#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace service_streamer::native {

// Where memory comes from: so many bytes, or std::bad_alloc. It goes with the last reference.
using Allocate = std::function<std::shared_ptr<std::byte>(std::size_t bytes)>;

// Memory that batch after batch is collated into: fresh memory would cost a page fault for every 4 KiB, several times the copy.
class Staging {
 public:
  static constexpr std::size_t kAlignment = 64;  // what compiled models count on; of what it allocates by itself

  Staging();  // of the host's ordinary memory
  explicit Staging(Allocate allocate);

  // So many bytes, whose contents are undefined; valid until the next call. Throws std::bad_alloc.
  std::byte* reserve(std::size_t bytes);

  // Whether an address lies in it.
  bool holds(const void* address) const;

 private:
  Allocate allocate_;
  std::shared_ptr<std::byte> data_;
  std::size_t capacity_ = 0;
};

}  // namespace service_streamer::native
