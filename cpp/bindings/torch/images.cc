#include "bindings/torch/images.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>

#include "bindings/torch/python_tensors.h"
#include "bindings/torch/without_gil.h"
#include "service_streamer/cuda/gather.h"
#include "service_streamer/cuda/images.h"
#include "service_streamer/torch/device.h"

namespace py = pybind11;

namespace service_streamer::bindings {
namespace {

using torch_backend::Tensor;
using torch_backend::TensorDevice;

// For devices without a kernel of ours.
py::object normalized_by_torch(const py::object& images, const std::vector<float>& scale,
                               const std::vector<float>& shift, bool half) {
  const py::module_ torch = py::module_::import("torch");
  const auto of_channels = [&](const std::vector<float>& values) {
    return torch.attr("tensor")(values, py::arg("device") = images.attr("device")).attr("view")(1, -1, 1, 1);
  };
  const py::object turned = images.attr("permute")(0, 3, 1, 2).attr("to")(torch.attr("float32"));
  const py::object normalized = turned.attr("mul")(of_channels(scale)).attr("add")(of_channels(shift));
  return normalized.attr("to")(torch.attr(half ? "float16" : "float32")).attr("contiguous")();
}

Tensor normalized(const DlTensor& images, TensorDevice device, const std::vector<float>& scale,
                  const std::vector<float>& shift, bool half) {
  const std::array<std::int64_t, 4> sizes{images.sizes[0], images.sizes[3], images.sizes[1], images.sizes[2]};
  Tensor to = Tensor::empty(sizes, half ? native::Dtype::kFloat16 : native::Dtype::kFloat32, device);
  cuda::Images all{.from = reinterpret_cast<const std::uint8_t*>(images.first()),
                   .to = to.data(),
                   .half = half,
                   .count = images.sizes[0],
                   .rows = images.sizes[1],
                   .columns = images.sizes[2],
                   .channels = images.sizes[3]};
  std::copy(scale.begin(), scale.end(), all.scale.begin());
  std::copy(shift.begin(), shift.end(), all.shift.begin());
  if (device.is_cpu()) {
    cuda::normalize_images(all);
  } else {
    const auto stream = torch_backend::TorchStream::of_this_thread(device);
    const torch_backend::UseStream use(stream);  // also makes its device the current one
    cuda::normalize_images_on_device(all, stream.native);
  }
  return to;
}

}  // namespace

py::object normalize_images(const py::object& images, const std::vector<float>& scale, const std::vector<float>& shift,
                            bool half) {
  DlTensor described{};
  const bool plain = describe_tensor(images.ptr(), described);
  const std::optional<TensorDevice> device = plain ? described.device() : std::nullopt;
  if (!device || !(device->is_cpu() || cuda::has_kernels())) return normalized_by_torch(images, scale, shift, half);
  std::vector<Tensor> results(1);
  without_gil([&] { results[0] = normalized(described, *device, scale, shift, half); });
  const auto made = py::reinterpret_steal<py::list>(python_tensors(std::move(results)));
  if (!made) throw py::error_already_set();
  return made[0];
}

}  // namespace service_streamer::bindings
