#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "service_streamer/native/tensor.h"
#include "service_streamer/torch/tensor.h"

// Python's tensors by DLPack's C exchange interface, which torch has from 2.10 on. All functions require the GIL.
namespace service_streamer::bindings {

// A tensor as DLPack describes it (DLTensor). It is valid until the tensor changes.
struct DlTensor {
  static constexpr std::int32_t kCpu = 1;
  static constexpr std::int32_t kCuda = 2;

  void* data;
  std::int32_t device_type;
  std::int32_t device_index;
  std::int32_t rank;
  std::uint8_t type_code;
  std::uint8_t type_bits;
  std::uint16_t type_lanes;
  std::int64_t* sizes;
  std::int64_t* strides;  // in elements
  std::uint64_t offset;   // of the first element from data, in bytes

  const std::byte* first() const { return static_cast<const std::byte*>(data) + offset; }
  std::optional<native::Dtype> dtype() const;                 // nullopt: models do not support the type
  std::optional<torch_backend::TensorDevice> device() const;  // nullopt: neither the CPU nor a GPU
};

// Looks up what the other functions need. To be called once, with torch imported. Throws error_already_set, or
// std::runtime_error if this torch does not have it.
void load_python_tensors();

bool is_tensor(PyObject* object);

// False if DLPack cannot describe the tensor: it is special, on another kind of device, or of a type that models do not
// support. No exception is set.
bool describe_tensor(PyObject* tensor, DlTensor& described);

// True if the tensor is not simply memory with sizes and strides: sparse, nested, conjugated, or of a subclass that
// computes by itself. Slow; for messages.
bool is_special_tensor(PyObject* tensor);

// Returns a list of Python's tensors. Those on a GPU may be used by the current stream of this thread. nullptr with an
// exception set on failure.
PyObject* python_tensors(std::vector<torch_backend::Tensor> tensors);

// Returns a contiguous tensor in the memory. The last tensor that uses the memory drops the reference, in any thread.
// nullptr with an exception set on failure.
PyObject* python_tensor(std::shared_ptr<std::byte> memory, native::Dtype dtype, const native::Shape& sizes);

}  // namespace service_streamer::bindings
