#pragma once

#include <cstddef>
#include <cstdint>

namespace service_streamer::torch_backend {

struct TensorObject;
using TensorHandle = TensorObject*;  // AtenTensorHandle of torch's C interface

// The functions of torch's C interface that this module calls. They are looked up in the libtorch_cpu that the process
// has loaded, so the module links no library of torch, and works with every version that has them. torch declares them
// in torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h. Each returns 0, or another number on
// failure.
struct Shims {
  std::int32_t (*delete_tensor)(TensorHandle tensor);
  std::int32_t (*new_handle)(TensorHandle tensor, TensorHandle* made);  // refers to the same tensor
  std::int32_t (*empty)(std::int64_t rank, const std::int64_t* sizes, const std::int64_t* strides, std::int32_t dtype,
                        std::int32_t device_type, std::int32_t device_index, TensorHandle* made);
  std::int32_t (*empty_pinned)(std::int64_t rank, const std::int64_t* sizes, const std::int64_t* strides,
                               std::int32_t dtype, std::int32_t device_type, std::int32_t device_index,
                               TensorHandle* made);
  std::int32_t (*from_memory)(void* data, std::int64_t rank, const std::int64_t* sizes, const std::int64_t* strides,
                              std::int64_t offset, std::int32_t dtype, std::int32_t device_type,
                              std::int32_t device_index, TensorHandle* made, std::int32_t layout,
                              const std::uint8_t* metadata, std::int64_t metadata_size);
  std::int32_t (*view)(TensorHandle tensor, std::int64_t rank, const std::int64_t* sizes, const std::int64_t* strides,
                       std::int64_t offset, TensorHandle* made);
  std::int32_t (*clone)(TensorHandle tensor, TensorHandle* made);
  std::int32_t (*copy)(TensorHandle to, TensorHandle from, std::int32_t non_blocking);
  std::int32_t (*zero)(TensorHandle tensor);
  std::int32_t (*data)(TensorHandle tensor, void** data);
  std::int32_t (*rank)(TensorHandle tensor, std::int64_t* rank);
  std::int32_t (*sizes)(TensorHandle tensor, std::int64_t** sizes);
  std::int32_t (*strides)(TensorHandle tensor, std::int64_t** strides);
  std::int32_t (*offset)(TensorHandle tensor, std::int64_t* offset);
  std::int32_t (*dtype)(TensorHandle tensor, std::int32_t* dtype);
  std::int32_t (*device_type)(TensorHandle tensor, std::int32_t* type);
  std::int32_t (*device_index)(TensorHandle tensor, std::int32_t* index);
  std::int32_t (*is_contiguous)(TensorHandle tensor, bool* contiguous);
  std::size_t (*element_size)(std::int32_t dtype);
  std::int32_t (*cuda_type)();

  // at::get_num_threads() and at::set_num_threads(), for which there is no C function that sets.
  int (*get_num_threads)();
  void (*set_num_threads)(int count);

  // What the last failed function of this thread says, with a backtrace. nullptr before torch 2.13.
  const char* (*error)();
};

// The functions. The first call looks them up, with torch imported. Throws std::runtime_error that names a missing one.
const Shims& shims();

// The functions for a GPU. torch's are in its libtorch_cuda, and those of CUDA in the runtime that torch has loaded.
struct CudaShims {
  std::int32_t (*stream_from_pool)(bool high_priority, std::int32_t device, void** stream);
  std::int32_t (*current_stream)(std::int32_t device, void** stream);
  std::int32_t (*use_stream)(void* stream, std::int32_t device, void** guard);
  std::int32_t (*end_use)(void* guard);

  int (*event_create)(void** event, unsigned int flags);
  int (*event_record)(void* event, void* stream);
  int (*stream_wait)(void* stream, void* event, unsigned int flags);
  int (*event_synchronize)(void* event);
  int (*event_destroy)(void* event);
  const char* (*error_text)(int error);
  int (*take_last_error)();  // torch would report an error that was not taken as one of its own
};

const CudaShims& cuda_shims();

// Throw std::runtime_error if the code is not 0, with what torch or CUDA says about it.
void check(std::int32_t code);
void check_cuda(int code);

}  // namespace service_streamer::torch_backend
