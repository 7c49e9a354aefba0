#include "bindings/torch/views.h"

#include <torch/csrc/autograd/python_variable.h>

#include <optional>
#include <string_view>
#include <utility>

#include "service_streamer/torch/dtypes.h"

namespace service_streamer::bindings {
namespace {

using native::TensorView;

// A batch has one more dimension than its items.
constexpr std::size_t kMaxItemDimensions = native::kMaxDimensions - 1;

// Converts a format of the struct module in native byte order. The size distinguishes the integer types.
std::optional<native::Dtype> dtype_of_format(const char* format, Py_ssize_t size) {
  using native::Dtype;
  if (format == nullptr) return Dtype::kUint8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const std::string_view code(format);
  if (code == "?") return Dtype::kBool;
  if (code == "B") return Dtype::kUint8;
  if (code == "b") return Dtype::kInt8;
  if (code == "e") return Dtype::kFloat16;
  if (code == "f") return Dtype::kFloat32;
  if (code == "d") return Dtype::kFloat64;
  if (code == "Zf") return Dtype::kComplex64;
  if (code == "Zd") return Dtype::kComplex128;
  if (code == "h" || code == "i" || code == "l" || code == "q") {
    if (size == 2) return Dtype::kInt16;
    if (size == 4) return Dtype::kInt32;
    if (size == 8) return Dtype::kInt64;
  }
  return std::nullopt;
}

std::nullopt_t refuse_dtype(const Label& label, const char* dtype) {
  PyErr_Format(PyExc_TypeError, "%s is %s, the model wants %s", label.text().c_str(), dtype, label.wanted);
  return std::nullopt;
}

bool fits_rank(const Label& label, std::int64_t rank) {
  if (std::cmp_less_equal(rank, kMaxItemDimensions)) return true;
  PyErr_Format(PyExc_TypeError, "%s has %lld dimensions, at most %zu are possible", label.text().c_str(),
               static_cast<long long>(rank), kMaxItemDimensions);
  return false;
}

}  // namespace

ViewOwners::~ViewOwners() {
  for (Py_buffer& buffer : buffers_) PyBuffer_Release(&buffer);
  for (PyObject* object : objects_) Py_DECREF(object);
}

std::optional<Location> ViewOwners::view(PyObject* object, const Label& label, TensorView& view,
                                         std::optional<c10::Device> device) {
  return THPVariable_Check(object) ? view_tensor(object, label, view, device) : view_buffer(object, label, view);
}

std::optional<Location> ViewOwners::view_tensor(PyObject* object, const Label& label, TensorView& view,
                                                std::optional<c10::Device> device) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  const bool plain = tensor.layout() == c10::kStrided && !tensor.unsafeGetTensorImpl()->is_python_dispatch() &&
                     !tensor.is_conj() && !tensor.is_neg() && !tensor.is_nested() && !tensor._is_zerotensor();
  const bool on_device = device == tensor.device();
  if (!plain || !(on_device || tensor.device().is_cpu())) {
    PyErr_Format(PyExc_TypeError, "%s is a %s tensor on %s, the model wants a dense one on %s", label.text().c_str(),
                 plain ? "dense" : "special", tensor.device().str().c_str(), label.devices);
    return std::nullopt;
  }
  if (!torch_backend::dtype_of(tensor.scalar_type(), view.dtype)) {
    return refuse_dtype(label, c10::toString(tensor.scalar_type()));
  }
  if (!fits_rank(label, tensor.dim())) return std::nullopt;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    view.sizes.push_back(tensor.size(i));
    view.strides.push_back(tensor.stride(i) * static_cast<std::int64_t>(tensor.element_size()));
  }
  view.data = static_cast<const std::byte*>(tensor.const_data_ptr());
  objects_.push_back(Py_NewRef(object));
  return on_device ? Location::kDevice : Location::kHost;
}

std::optional<Location> ViewOwners::view_buffer(PyObject* object, const Label& label, TensorView& view) {
  if (!PyObject_CheckBuffer(object) || PyBytes_Check(object)) {
    PyErr_Format(PyExc_TypeError, "%s must be a tensor or an array of %s, got %.200s", label.text().c_str(),
                 label.wanted, Py_TYPE(object)->tp_name);
    return std::nullopt;
  }
  Py_buffer& buffer = buffers_.emplace_back();
  if (PyObject_GetBuffer(object, &buffer, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
    buffers_.pop_back();
    return refuse_dtype(label, Py_TYPE(object)->tp_name);
  }
  const std::optional<native::Dtype> dtype = dtype_of_format(buffer.format, buffer.itemsize);
  if (!dtype) return refuse_dtype(label, buffer.format);
  if (!fits_rank(label, buffer.ndim)) return std::nullopt;
  view.dtype = *dtype;
  for (int i = 0; i < buffer.ndim; ++i) {
    view.sizes.push_back(buffer.shape[i]);
    view.strides.push_back(buffer.strides[i]);
  }
  view.data = static_cast<const std::byte*>(buffer.buf);
  return Location::kHost;
}

}  // namespace service_streamer::bindings
