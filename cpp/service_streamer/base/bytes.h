#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

namespace service_streamer::ipc {

// A slice of a buffer that several messages can share. Copies share the buffer and are cheap. The buffer is immutable
// once a Bytes is copied, so any thread may read it.
class Bytes {
 public:
  Bytes() = default;
  Bytes(std::shared_ptr<const std::byte[]> owner, const std::byte* data, std::size_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}

  // A new buffer, not zeroed. Fill it through `data` before the Bytes is copied. Throws std::bad_alloc, as copy_of()
  // does.
  static Bytes allocate(std::size_t size, std::byte*& data);
  static Bytes copy_of(std::string_view text);

  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Bytes slice(std::size_t begin, std::size_t size) const { return {owner_, data_ + begin, size}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  std::shared_ptr<const std::byte[]> owner_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace service_streamer::ipc
