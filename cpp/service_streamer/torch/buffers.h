#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "service_streamer/native/collate.h"

namespace service_streamer::torch_backend {

// Reusable memory for batches whose tensors are given to user code. User code may keep a tensor, or return a view of
// it. Memory that is still referenced is therefore not reused: the next batch gets new memory. Used by one thread at a
// time; the last reference to the memory may be dropped by any thread.
class Buffers {
 public:
  // `pinned`: use pinned memory, which a GPU can read by itself.
  explicit Buffers(bool pinned) : pinned_(pinned) {}

  // Returns memory for tensor number `index` of a batch: with undefined contents, and aligned as compiled models expect
  // it. Throws what torch throws if there is not enough memory.
  std::shared_ptr<std::byte> take(std::size_t index, const native::Collator::Tensor& wanted);

 private:
  struct Memory {
    std::shared_ptr<std::byte> data;
    std::size_t bytes = 0;
  };

  const bool pinned_;
  std::vector<Memory> memory_;
};

}  // namespace service_streamer::torch_backend
