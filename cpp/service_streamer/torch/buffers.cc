#include "service_streamer/torch/buffers.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "service_streamer/torch/dtypes.h"

namespace service_streamer::torch_backend {

// A storage grows by at least half, so that slowly growing batches do not allocate every time.
at::Tensor Buffers::take(std::size_t index, const native::Collator::Tensor& wanted) {
  if (index >= storages_.size()) storages_.resize(index + 1);
  c10::Storage& storage = storages_[index];
  const std::size_t bytes = native::bytes_of(wanted);
  const bool usable = storage && storage.use_count() == 1;
  if (!usable || storage.nbytes() < bytes) {
    const std::size_t before = usable ? storage.nbytes() : 0;
    storage = {};  // free the old memory before allocating the new
    const auto size = static_cast<std::int64_t>(std::max(bytes, before + before / 2));
    storage = at::empty({size}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned_)).storage();
  }
  const auto type = c10::scalarTypeToTypeMeta(scalar_type_of(wanted.dtype));
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), type);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(
      c10::IntArrayRef(wanted.sizes.values().data(), wanted.sizes.rank()));
  return tensor;
}

}  // namespace service_streamer::torch_backend
