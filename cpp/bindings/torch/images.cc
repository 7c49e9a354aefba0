#include "bindings/torch/images.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "bindings/torch/without_gil.h"
#include "service_streamer/cuda/gather.h"
#include "service_streamer/cuda/images.h"
#include "service_streamer/torch/device.h"

namespace py = pybind11;

namespace service_streamer::bindings {
namespace {

// For devices without a kernel of ours.
at::Tensor normalized_by_torch(const at::Tensor& images, const std::vector<float>& scale,
                               const std::vector<float>& shift, at::ScalarType dtype) {
  const auto of_channels = [&](const std::vector<float>& values) {
    return at::tensor(values).to(images.device()).view({1, -1, 1, 1});
  };
  const at::Tensor turned = images.permute({0, 3, 1, 2}).to(at::kFloat);
  return turned.mul(of_channels(scale)).add(of_channels(shift)).to(dtype).contiguous();
}

at::Tensor normalized(const at::Tensor& images, const std::vector<float>& scale, const std::vector<float>& shift,
                      bool half) {
  const at::ScalarType dtype = half ? at::kHalf : at::kFloat;
  const bool by_kernel = images.is_cuda() && cuda::has_kernels();
  if (!by_kernel && !images.is_cpu()) return normalized_by_torch(images, scale, shift, dtype);
  at::Tensor to =
      at::empty({images.size(0), images.size(3), images.size(1), images.size(2)}, images.options().dtype(dtype));
  cuda::Images all{.from = images.const_data_ptr<std::uint8_t>(),
                   .to = to.mutable_data_ptr(),
                   .half = half,
                   .count = images.size(0),
                   .rows = images.size(1),
                   .columns = images.size(2),
                   .channels = images.size(3)};
  std::copy(scale.begin(), scale.end(), all.scale.begin());
  std::copy(shift.begin(), shift.end(), all.shift.begin());
  if (by_kernel) {
    const c10::Stream stream = torch_backend::stream_of_this_thread(images.device());
    const c10::StreamGuard guard(stream);  // also makes its device the current one
    cuda::normalize_images_on_device(all, stream.native_handle());
  } else {
    cuda::normalize_images(all);
  }
  return to;
}

}  // namespace

py::object normalize_images(const py::object& images, const std::vector<float>& scale, const std::vector<float>& shift,
                            bool half) {
  const at::Tensor tensor = THPVariable_Unpack(images.ptr());
  at::Tensor result;
  without_gil([&] { result = normalized(tensor, scale, shift, half); });
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(result));
}

}  // namespace service_streamer::bindings
