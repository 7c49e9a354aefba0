#include "service_streamer/torch/shims.h"

#include <dlfcn.h>

#include <initializer_list>
#include <stdexcept>
#include <string>

namespace service_streamer::torch_backend {
namespace {

// Looks functions up in libraries that are loaded already, in this order, and in all that the process sees.
class Library {
 public:
  Library(const char* what, std::initializer_list<const char*> names) : what_(what) {
    for (const char* name : names) {
      if (handle_ == nullptr) handle_ = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    }
    if (handle_ == nullptr) handle_ = RTLD_DEFAULT;
  }

  template <typename Function>
  void find(Function& function, const char* name) const {
    if (find_if_there(function, name)) return;
    throw std::runtime_error(std::string(what_) + " has no function " + name);
  }

  template <typename Function>
  bool find_if_there(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    return function != nullptr;
  }

 private:
  const char* const what_;
  void* handle_ = nullptr;
};

Shims find_shims() {
  const Library torch("torch", {"libtorch_cpu.so"});
  Shims found{};
  torch.find(found.delete_tensor, "aoti_torch_delete_tensor_object");
  torch.find(found.new_handle, "aoti_torch_new_tensor_handle");
  torch.find(found.empty, "aoti_torch_empty_strided");
  torch.find(found.empty_pinned, "aoti_torch_empty_strided_pinned");
  torch.find(found.from_memory, "aoti_torch_create_tensor_from_blob_v2");
  torch.find(found.view, "aoti_torch__reinterpret_tensor");
  torch.find(found.clone, "aoti_torch_clone");
  torch.find(found.copy, "aoti_torch_copy_");
  torch.find(found.zero, "aoti_torch_zero_");
  torch.find(found.data, "aoti_torch_get_data_ptr");
  torch.find(found.rank, "aoti_torch_get_dim");
  torch.find(found.sizes, "aoti_torch_get_sizes");
  torch.find(found.strides, "aoti_torch_get_strides");
  torch.find(found.offset, "aoti_torch_get_storage_offset");
  torch.find(found.dtype, "aoti_torch_get_dtype");
  torch.find(found.device_type, "aoti_torch_get_device_type");
  torch.find(found.device_index, "aoti_torch_get_device_index");
  torch.find(found.is_contiguous, "aoti_torch_is_contiguous");
  torch.find(found.element_size, "aoti_torch_dtype_element_size");
  torch.find(found.cuda_type, "aoti_torch_device_type_cuda");
  torch.find(found.get_num_threads, "_ZN2at15get_num_threadsEv");
  torch.find(found.set_num_threads, "_ZN2at15set_num_threadsEi");
  torch.find_if_there(found.error, "torch_exception_get_what");
  return found;
}

// A handle of libtorch_cuda also finds what is in the libraries that it needs, as CUDA's runtime.
CudaShims find_cuda_shims() {
  const Library cuda("torch's CUDA library", {"libtorch_cuda.so"});
  CudaShims found{};
  cuda.find(found.stream_from_pool, "torch_get_cuda_stream_from_pool");
  cuda.find(found.current_stream, "aoti_torch_get_current_cuda_stream");
  cuda.find(found.use_stream, "aoti_torch_create_cuda_stream_guard");
  cuda.find(found.end_use, "aoti_torch_delete_cuda_stream_guard");
  cuda.find(found.event_create, "cudaEventCreateWithFlags");
  cuda.find(found.event_record, "cudaEventRecord");
  cuda.find(found.stream_wait, "cudaStreamWaitEvent");
  cuda.find(found.event_synchronize, "cudaEventSynchronize");
  cuda.find(found.event_destroy, "cudaEventDestroy");
  cuda.find(found.error_text, "cudaGetErrorString");
  cuda.find(found.take_last_error, "cudaGetLastError");
  return found;
}

}  // namespace

const Shims& shims() {
  static const Shims found = find_shims();
  return found;
}

const CudaShims& cuda_shims() {
  static const CudaShims found = find_cuda_shims();
  return found;
}

void check(std::int32_t code) {
  if (code == 0) return;
  const char* text = shims().error != nullptr ? shims().error() : nullptr;
  throw std::runtime_error(text != nullptr && *text != '\0' ? text : "torch failed; it has printed the reason");
}

void check_cuda(int code) {
  if (code == 0) return;
  cuda_shims().take_last_error();
  throw std::runtime_error(std::string("CUDA error: ") + cuda_shims().error_text(code));
}

}  // namespace service_streamer::torch_backend
