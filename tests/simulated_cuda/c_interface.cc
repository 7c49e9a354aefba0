// The functions of libtorch_cuda and of CUDA's runtime that the package looks up, for the simulated GPUs. Names and
// arguments are theirs.

#include <c10/core/StreamGuard.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "streams.h"

namespace simulated_cuda {
namespace {

// A stream as a pointer: its device and number, and not null.
void* pointer_to(const c10::Stream& stream) {
  return reinterpret_cast<void*>((stream.id() * kDevices + stream.device_index()) * 16 + 8);
}

c10::Stream stream_at(void* pointer) {
  const std::intptr_t number = reinterpret_cast<std::intptr_t>(pointer) / 16;
  const auto device = static_cast<c10::DeviceIndex>(number % kDevices);
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, device), number / kDevices);
}

// Like in CUDA, an event belongs to the device that was current when it was made.
struct CudaEvent {
  c10::Device device;
  std::shared_ptr<Point> last;
};

constexpr int kSuccess = 0;
constexpr int kInvalidHandle = 400;

std::atomic<bool> fails = false;  // the next recording of an event
thread_local int last_error = kSuccess;

}  // namespace
}  // namespace simulated_cuda

#pragma GCC visibility push(default)
extern "C" {

using namespace simulated_cuda;

std::int32_t torch_get_cuda_stream_from_pool(bool /*high_priority*/, std::int32_t device, void** stream) {
  *stream = pointer_to(next_of_pool(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device))));
  return 0;
}

std::int32_t aoti_torch_get_current_cuda_stream(std::int32_t device, void** stream) {
  *stream = pointer_to(current_stream(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device))));
  return 0;
}

std::int32_t aoti_torch_create_cuda_stream_guard(void* stream, std::int32_t device, void** guard) {
  const c10::Stream own = stream_at(stream);
  if (own.device_index() != device) return 1;
  *guard = new c10::StreamGuard(own);
  return 0;
}

std::int32_t aoti_torch_delete_cuda_stream_guard(void* guard) {
  delete static_cast<c10::StreamGuard*>(guard);
  return 0;
}

int cudaEventCreateWithFlags(void** event, unsigned int /*flags*/) {
  *event = new CudaEvent{.device = current_device(), .last = nullptr};
  return kSuccess;
}

int cudaEventRecord(void* event, void* stream) {
  if (fails.exchange(false)) return last_error = kInvalidHandle;
  auto& own = *static_cast<CudaEvent*>(event);
  const c10::Stream on = stream_at(stream);
  if (own.device != on.device()) return kInvalidHandle;
  own.last = stream_of(on).record_point();
  return kSuccess;
}

int cudaStreamWaitEvent(void* stream, void* event, unsigned int /*flags*/) {
  const std::shared_ptr<Point>& last = static_cast<CudaEvent*>(event)->last;
  if (last != nullptr) stream_of(stream_at(stream)).wait_for(last);
  return kSuccess;
}

int cudaEventSynchronize(void* event) {
  const std::shared_ptr<Point>& last = static_cast<CudaEvent*>(event)->last;
  if (last != nullptr) last->wait();
  return kSuccess;
}

int cudaEventDestroy(void* event) {
  delete static_cast<CudaEvent*>(event);
  return kSuccess;
}

const char* cudaGetErrorString(int /*error*/) {
  return "invalid resource handle";
}

int cudaGetLastError() {
  return std::exchange(last_error, kSuccess);
}

void simulated_cuda_fail_next_event() {
  fails = true;
}

}  // extern "C"
#pragma GCC visibility pop
