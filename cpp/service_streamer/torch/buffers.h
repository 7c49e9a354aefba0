#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "service_streamer/native/collate.h"

namespace service_streamer::torch_backend {

// Reusable memory for batches whose tensors are given to user code. User code may keep a tensor, or return a view of
// it. Memory that is still referenced is therefore not reused: the next batch gets new memory. Used by one thread at a
// time.
class Buffers {
 public:
  // `pinned`: use pinned memory, which a GPU can read by itself.
  explicit Buffers(bool pinned) : pinned_(pinned) {}

  // Returns tensor number `index` of a batch: contiguous, with undefined contents, and aligned as compiled models
  // expect it. Throws what torch throws if there is not enough memory.
  at::Tensor take(std::size_t index, const native::Collator::Tensor& wanted);

 private:
  const bool pinned_;
  std::vector<c10::Storage> storages_;
};

}  // namespace service_streamer::torch_backend
