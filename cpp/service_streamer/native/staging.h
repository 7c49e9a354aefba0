#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace service_streamer::native {

// Memory that batch after batch is collated into: fresh memory would cost a page fault for every 4 KiB, several times the copy.
class Staging {
 public:
  static constexpr std::size_t kAlignment = 64;  // what compiled models count on

  // So many bytes, whose contents are undefined; valid until the next call. Throws std::bad_alloc.
  std::byte* reserve(std::size_t bytes);

  // Whether an address lies in it.
  bool holds(const void* address) const;

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };

  std::unique_ptr<std::byte, Free> data_;
  std::size_t capacity_ = 0;
};

}  // namespace service_streamer::native
