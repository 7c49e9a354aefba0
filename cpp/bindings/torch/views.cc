#include "bindings/torch/views.h"

#include <optional>
#include <string_view>
#include <utility>

#include "bindings/torch/python_tensors.h"

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

// Raises the error of an array whose numbers the model cannot take.
std::nullopt_t refuse_array(const Label& label, const std::string& type) {
  PyErr_Format(PyExc_TypeError, "%s is %s, the model wants %s: convert the array, as with .astype(\"float32\")",
               label.text().c_str(), type.c_str(), label.wanted);
  return std::nullopt;
}

// The text of an object, for a message. Steals the reference, which may be nullptr.
std::string text_of(PyObject* object) {
  PyObject* text = object == nullptr ? nullptr : PyObject_Str(object);
  const char* characters = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
  std::string result = characters == nullptr ? "?" : characters;
  Py_XDECREF(text);
  Py_XDECREF(object);
  PyErr_Clear();
  return result;
}

// The name of an element type: "Half" of "torch.cuda.HalfTensor".
std::string type_name_of(PyObject* tensor) {
  std::string name = text_of(PyObject_CallMethod(tensor, "type", nullptr));
  name.erase(0, name.rfind('.') + 1);
  return name.substr(0, name.rfind("Tensor"));
}

// The type of an array in words, "big-endian float32"; the format of another buffer.
std::string array_type_of(PyObject* array, const char* format) {
  PyObject* dtype = PyObject_GetAttrString(array, "dtype");
  PyErr_Clear();
  const std::string text(format != nullptr ? format : "");
  if (dtype == nullptr) return "a buffer of the format '" + text + "'";
  const std::string name = text_of(PyObject_GetAttrString(dtype, "name"));
  Py_DECREF(dtype);
  return (text.starts_with('>') ? "big-endian " : "") + name;
}

std::nullopt_t refuse_tensor(const Label& label, PyObject* tensor) {
  const bool special = is_special_tensor(tensor);
  const std::string device = text_of(PyObject_GetAttrString(tensor, "device"));
  if (!special && device == "cpu") return refuse_dtype(label, type_name_of(tensor).c_str());
  PyErr_Format(PyExc_TypeError, "%s is a %s tensor on %s, the model wants a dense one on %s", label.text().c_str(),
               special ? "special" : "dense", device.c_str(), label.devices);
  return std::nullopt;
}

bool fits_rank(const Label& label, std::int64_t rank) {
  if (std::cmp_less_equal(rank, kMaxItemDimensions)) return true;
  PyErr_Format(PyExc_TypeError, "%s has %lld dimensions, at most %zu are possible", label.text().c_str(),
               static_cast<long long>(rank), kMaxItemDimensions);
  return false;
}

// collections.abc.Mapping, a borrowed reference; nullptr with an exception set.
PyObject* mapping_type() {
  static PyObject* type = nullptr;
  if (type != nullptr) return type;
  PyObject* abc = PyImport_ImportModule("collections.abc");
  if (abc != nullptr) type = PyObject_GetAttrString(abc, "Mapping");
  Py_XDECREF(abc);
  return type;
}

}  // namespace

PyObject* dict_of(PyObject* object) {
  if (PyDict_Check(object)) return Py_NewRef(object);
  if (is_tensor(object) || PyObject_CheckBuffer(object) != 0) return nullptr;
  PyObject* type = mapping_type();
  if (type == nullptr || PyObject_IsInstance(object, type) != 1) return nullptr;
  PyObject* dict = PyDict_New();
  if (dict != nullptr && PyDict_Update(dict, object) < 0) Py_CLEAR(dict);
  return dict;
}

ViewOwners::~ViewOwners() {
  for (Py_buffer& buffer : buffers_) PyBuffer_Release(&buffer);
  for (PyObject* object : objects_) Py_DECREF(object);
}

std::optional<Location> ViewOwners::view(PyObject* object, const Label& label, TensorView& view,
                                         std::optional<torch_backend::TensorDevice> device) {
  return is_tensor(object) ? view_tensor(object, label, view, device) : view_buffer(object, label, view);
}

std::optional<Location> ViewOwners::view_tensor(PyObject* object, const Label& label, TensorView& view,
                                                std::optional<torch_backend::TensorDevice> device) {
  DlTensor tensor{};
  if (!describe_tensor(object, tensor)) return refuse_tensor(label, object);
  const std::optional<torch_backend::TensorDevice> found = tensor.device();
  const bool on_device = found && device == found;
  if (!on_device && !(found && found->is_cpu())) return refuse_tensor(label, object);
  const std::optional<native::Dtype> dtype = tensor.dtype();
  if (!dtype) return refuse_dtype(label, type_name_of(object).c_str());
  if (!fits_rank(label, tensor.rank)) return std::nullopt;
  view.dtype = *dtype;
  for (std::int32_t i = 0; i < tensor.rank; ++i) {
    view.sizes.push_back(tensor.sizes[i]);
    view.strides.push_back(tensor.strides[i] * static_cast<std::int64_t>(native::size_of(*dtype)));
  }
  view.data = tensor.first();
  objects_.push_back(Py_NewRef(object));
  return on_device ? Location::kDevice : Location::kHost;
}

std::optional<Location> ViewOwners::view_buffer(PyObject* object, const Label& label, TensorView& view) {
  if (!PyObject_CheckBuffer(object) || PyBytes_Check(object)) {
    PyErr_Format(PyExc_TypeError, "%s must be a tensor or an array of %s, got %.200s", label.text().c_str(),
                 label.wanted, Py_TYPE(object)->tp_name);
    return std::nullopt;
  }
  if (std::string_view(Py_TYPE(object)->tp_name) == "MaskedArray") {
    PyErr_Format(PyExc_TypeError, "%s is a masked array, whose hidden values the model would get: pass .filled(value)",
                 label.text().c_str());
    return std::nullopt;
  }
  Py_buffer& buffer = buffers_.emplace_back();
  if (PyObject_GetBuffer(object, &buffer, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
    buffers_.pop_back();
    PyErr_Clear();
    return refuse_array(label, array_type_of(object, nullptr));
  }
  const std::optional<native::Dtype> dtype = dtype_of_format(buffer.format, buffer.itemsize);
  if (!dtype) return refuse_array(label, array_type_of(object, buffer.format));
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
