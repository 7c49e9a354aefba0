#include "bindings/torch/python_tensors.h"

#include <pybind11/pybind11.h>

#include <array>
#include <stdexcept>
#include <utility>

namespace py = pybind11;

namespace service_streamer::bindings {
namespace {

using native::Dtype;

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

// DLManagedTensorVersioned
struct ManagedTensor {
  Version version;
  void* context;
  void (*release)(ManagedTensor* self);
  std::uint64_t flags;
  DlTensor tensor;
};

// DLPackExchangeAPI, version 1
struct ExchangeInterface {
  static constexpr const char* kCapsule = "dlpack_exchange_api";

  Version version;
  ExchangeInterface* previous;
  void* allocate;
  int (*export_tensor)(void* object, ManagedTensor** tensor);
  int (*import_tensor)(ManagedTensor* tensor, void** object);
  int (*describe)(void* object, DlTensor* tensor);
  int (*current_stream)(std::int32_t device_type, std::int32_t device_index, void** stream);
};

// Borrowed for good: torch is never unloaded.
struct Python {
  const ExchangeInterface* exchange = nullptr;
  PyTypeObject* tensor = nullptr;
  PyObject* parameter = nullptr;
  PyObject* no_dispatch = nullptr;  // __torch_dispatch__ of tensors that torch computes
  PyObject* strided = nullptr;      // torch.strided
  PyObject* take = nullptr;         // makes tensors of handles
  PyObject* keys = nullptr;         // tells the dispatch keys of a tensor
  PyObject* negative = nullptr;     // the key of a negated tensor
  PyObject* conjugate = nullptr;    // the key of a conjugated one
  PyObject* current_stream = nullptr;
};

Python& python() {
  static Python only;
  return only;
}

enum TypeCode : std::uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };

// In the order of native::Dtype.
constexpr std::array<std::pair<std::uint8_t, std::uint8_t>, 12> kTypes{{{kBool, 8},
                                                                        {kUint, 8},
                                                                        {kInt, 8},
                                                                        {kInt, 16},
                                                                        {kInt, 32},
                                                                        {kInt, 64},
                                                                        {kFloat, 16},
                                                                        {kBfloat, 16},
                                                                        {kFloat, 32},
                                                                        {kFloat, 64},
                                                                        {kComplex, 64},
                                                                        {kComplex, 128}}};

// Whether the attribute is this object. No exception is set.
bool attribute_is(PyObject* object, const char* name, const PyObject* value) {
  PyObject* attribute = PyObject_GetAttrString(object, name);
  Py_XDECREF(attribute);
  PyErr_Clear();
  return attribute == value;
}

bool is_true(PyObject* object, const char* method) {
  PyObject* result = PyObject_CallMethod(object, method, nullptr);
  Py_XDECREF(result);
  PyErr_Clear();
  return result == Py_True;
}

// A subclass may compute by itself; its memory then means nothing, or is not there.
bool computes_by_itself(PyObject* tensor) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(tensor));
  if (Py_TYPE(tensor) == python().tensor || type == python().parameter) return false;
  return !attribute_is(type, "__torch_dispatch__", python().no_dispatch);
}

PyObject* kept(py::object object) {
  return object.release().ptr();
}

bool has_key(PyObject* keys, PyObject* key) {
  static PyObject* const has = PyUnicode_InternFromString("has");
  PyObject* result = PyObject_CallMethodOneArg(keys, has, key);
  Py_XDECREF(result);
  PyErr_Clear();
  return result == Py_True;
}

// Whether the numbers are the negated or conjugated ones of the memory. Only tensors that may be it are asked: a
// conjugated tensor has complex numbers, and a negated one is a view of imaginary parts, with strides that are all
// even. is_neg() and is_conj() would give up the GIL.
bool is_lazy(PyObject* tensor, const DlTensor& described) {
  bool even = described.type_code == kFloat;
  for (std::int32_t i = 0; i < described.rank; ++i) {
    even = even && (described.sizes[i] == 1 || described.strides[i] % 2 == 0);
  }
  if (described.type_code != kComplex && !even) return false;
  PyObject* keys = PyObject_CallOneArg(python().keys, tensor);
  const bool lazy = keys != nullptr && (has_key(keys, python().negative) || has_key(keys, python().conjugate));
  Py_XDECREF(keys);
  PyErr_Clear();
  return lazy;
}

// Memory of ours that a tensor uses.
struct Lent {
  ManagedTensor managed{};
  std::shared_ptr<std::byte> memory;
  native::Shape sizes;
  native::Shape strides;
};

bool let_this_stream_use(PyObject* tensor, std::int32_t gpu) {
  PyObject* stream = PyObject_CallFunction(python().current_stream, "i", static_cast<int>(gpu));
  if (stream == nullptr) return false;
  PyObject* done = PyObject_CallMethod(tensor, "record_stream", "O", stream);
  Py_DECREF(stream);
  Py_XDECREF(done);
  return done != nullptr;
}

}  // namespace

std::optional<Dtype> DlTensor::dtype() const {
  for (std::size_t i = 0; type_lanes == 1 && i < kTypes.size(); ++i) {
    if (kTypes[i] == std::pair(type_code, type_bits)) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

std::optional<torch_backend::TensorDevice> DlTensor::device() const {
  if (device_type == kCpu) return torch_backend::TensorDevice{};
  if (device_type == kCuda) return torch_backend::TensorDevice{.gpu = device_index};
  return std::nullopt;
}

void load_python_tensors() {
  const py::module_ torch = py::module_::import("torch");
  const py::object tensor = torch.attr("Tensor");
  const py::object c = torch.attr("_C");
  if (!py::hasattr(tensor, "__dlpack_c_exchange_api__")) {
    throw std::runtime_error("its tensors have no __dlpack_c_exchange_api__");
  }
  const py::capsule capsule = tensor.attr("__dlpack_c_exchange_api__");
  const auto* exchange = static_cast<const ExchangeInterface*>(capsule.get_pointer<void>());
  if (exchange->version.major != 1) throw std::runtime_error("it has another DLPack than version 1");
  python() = {.exchange = exchange,
              .tensor = reinterpret_cast<PyTypeObject*>(kept(tensor)),
              .parameter = kept(torch.attr("nn").attr("Parameter")),
              .no_dispatch = kept(tensor.attr("__torch_dispatch__")),
              .strided = kept(torch.attr("strided")),
              .take = kept(c.attr("_aoti").attr("alloc_tensors_by_stealing_from_void_ptrs")),
              .keys = kept(c.attr("_dispatch_keys")),
              .negative = kept(c.attr("DispatchKey").attr("Negative")),
              .conjugate = kept(c.attr("DispatchKey").attr("Conjugate")),
              .current_stream = kept(torch.attr("cuda").attr("current_stream"))};
}

bool is_tensor(PyObject* object) {
  return PyObject_TypeCheck(object, python().tensor);
}

bool describe_tensor(PyObject* tensor, DlTensor& described) {
  if (computes_by_itself(tensor)) return false;
  if (python().exchange->describe(tensor, &described) != 0) {
    PyErr_Clear();
    return false;
  }
  std::int64_t elements = 1;
  for (std::int32_t i = 0; i < described.rank; ++i) elements *= described.sizes[i];
  if (described.data == nullptr && elements != 0) return false;  // a tensor of zeros without memory
  return !is_lazy(tensor, described);
}

bool is_special_tensor(PyObject* tensor) {
  return computes_by_itself(tensor) || !attribute_is(tensor, "layout", python().strided) ||
         attribute_is(tensor, "is_nested", Py_True) || is_true(tensor, "is_conj") || is_true(tensor, "is_neg") ||
         is_true(tensor, "_is_zerotensor");
}

PyObject* python_tensors(std::vector<torch_backend::Tensor> tensors) {
  const std::int32_t gpu = tensors.empty() ? torch_backend::TensorDevice::kCpu : tensors.front().device().gpu;
  PyObject* handles = PyList_New(static_cast<Py_ssize_t>(tensors.size()));
  for (std::size_t i = 0; handles != nullptr && i < tensors.size(); ++i) {
    PyObject* handle = PyCapsule_New(tensors[i].handle(), nullptr, nullptr);
    if (handle == nullptr) Py_CLEAR(handles);
    if (handles != nullptr) PyList_SET_ITEM(handles, static_cast<Py_ssize_t>(i), handle);
  }
  if (handles == nullptr) return nullptr;
  for (torch_backend::Tensor& tensor : tensors) tensor.release();  // a call that fails may have taken some of them
  PyObject* made = PyObject_CallOneArg(python().take, handles);
  Py_DECREF(handles);
  if (gpu == torch_backend::TensorDevice::kCpu) return made;
  for (Py_ssize_t i = 0; made != nullptr && i < PyList_GET_SIZE(made); ++i) {
    if (!let_this_stream_use(PyList_GET_ITEM(made, i), gpu)) Py_CLEAR(made);
  }
  return made;
}

PyObject* python_tensor(std::shared_ptr<std::byte> memory, Dtype dtype, const native::Shape& sizes) {
  auto* const lent = new Lent{.memory = std::move(memory), .sizes = sizes, .strides = sizes};
  std::int64_t stride = 1;
  for (std::size_t i = sizes.rank(); i-- > 0; stride *= sizes[i]) lent->strides[i] = stride;
  const auto [code, bits] = kTypes[static_cast<std::size_t>(dtype)];
  lent->managed = {.version = python().exchange->version,
                   .context = lent,
                   .release = [](ManagedTensor* self) { delete static_cast<Lent*>(self->context); },
                   .flags = 0,
                   .tensor = {.data = lent->memory.get(),
                              .device_type = DlTensor::kCpu,
                              .device_index = 0,
                              .rank = static_cast<std::int32_t>(sizes.rank()),
                              .type_code = code,
                              .type_bits = bits,
                              .type_lanes = 1,
                              .sizes = lent->sizes.rank() > 0 ? &lent->sizes[0] : nullptr,
                              .strides = lent->strides.rank() > 0 ? &lent->strides[0] : nullptr,
                              .offset = 0}};
  void* made = nullptr;
  if (python().exchange->import_tensor(&lent->managed, &made) != 0) return nullptr;
  return static_cast<PyObject*>(made);
}

}  // namespace service_streamer::bindings
