#include "service_streamer/torch/buffers.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "service_streamer/torch/dtypes.h"

namespace service_streamer::torch_backend {

// A storage grows by half at least, so that batches which become larger one by one do not each get new memory.
at::Tensor Buffers::take(std::size_t number, const native::Collator::Tensor& wanted) {
  if (number >= storages_.size()) storages_.resize(number + 1);
  c10::Storage& storage = storages_[number];
  const std::size_t bytes = native::bytes_of(wanted);
  const bool usable = storage && storage.use_count() == 1;
  if (!usable || storage.nbytes() < bytes) {
    const std::size_t before = usable ? storage.nbytes() : 0;
    storage = {};  // not both at a time
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
