#include "service_streamer/torch/buffers.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "service_streamer/torch/device.h"

namespace service_streamer::torch_backend {

// Memory grows by at least half, so that slowly growing batches do not allocate every time.
std::shared_ptr<std::byte> Buffers::take(std::size_t index, const native::Collator::Tensor& wanted) {
  if (index >= memory_.size()) memory_.resize(index + 1);
  Memory& memory = memory_[index];
  const std::size_t bytes = native::bytes_of(wanted);
  const bool usable = memory.data.use_count() == 1;
  std::atomic_thread_fence(std::memory_order_acquire);  // after what the thread did that dropped the last reference
  if (!usable || memory.bytes < bytes) {
    const std::size_t before = usable ? memory.bytes : 0;
    memory = {};  // free the old memory before allocating the new
    const std::size_t size = std::max(bytes, before + before / 2);
    memory = {.data = memory_of(Tensor::empty_bytes(size, {}, pinned_)), .bytes = size};
  }
  return memory.data;
}

}  // namespace service_streamer::torch_backend
