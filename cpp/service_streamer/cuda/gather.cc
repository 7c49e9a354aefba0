#include "service_streamer/cuda/gather.h"

namespace service_streamer::cuda {

GatherRow gather_row_of(const native::TensorView& view) {
  GatherRow row{};
  row.data = view.data;
  for (std::size_t i = 0; i < view.sizes.rank(); ++i) {
    row.sizes[i] = view.sizes[i];
    row.strides[i] = view.strides[i];
  }
  return row;
}

}  // namespace service_streamer::cuda
