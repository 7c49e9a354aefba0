#include "service_streamer/base/bytes.h"

#include <cstring>

namespace service_streamer::ipc {

Bytes Bytes::allocate(std::size_t size, std::byte*& data) {
  std::shared_ptr<std::byte[]> owner = std::make_shared_for_overwrite<std::byte[]>(size);
  data = owner.get();
  return {std::move(owner), data, size};
}

Bytes Bytes::copy_of(std::string_view text) {
  std::byte* data = nullptr;
  Bytes bytes = allocate(text.size(), data);
  if (!text.empty()) std::memcpy(data, text.data(), text.size());
  return bytes;
}

}  // namespace service_streamer::ipc
