#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "service_streamer/native/collate.h"

namespace service_streamer::torch_backend {

// Memory for batches whose tensors leave our hands: a model may keep one, or return a view of it, as long as it likes. What is
// still referred to is left to whoever does, and new memory taken; else the same is used again. For one thread at a time.
class Buffers {
 public:
  // `pinned`: where a GPU can copy from by itself.
  explicit Buffers(bool pinned) : pinned_(pinned) {}

  // The tensor with this number of a batch: contents undefined, contiguous, aligned as compiled models want it. Throws what torch
  // throws when there is no memory.
  at::Tensor take(std::size_t number, const native::Collator::Tensor& wanted);

 private:
  const bool pinned_;
  std::vector<c10::Storage> storages_;
};

}  // namespace service_streamer::torch_backend
