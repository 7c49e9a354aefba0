// Registers the simulated GPUs with torch: devices, streams, events, allocators.

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <memory>
#include <thread>

#include "memory.h"
#include "streams.h"

namespace simulated_cuda {
namespace {

// Like in CUDA, an event refers to the point that was recorded last.
struct Event {
  std::shared_ptr<Point> last;
};

Event& event_at(void* event) {
  return *static_cast<Event*>(event);
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr c10::DeviceType static_type = c10::kCUDA;

  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Device getDevice() const override { return current_device(); }
  void setDevice(c10::Device device) const override { set_current_device(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_current_device(device); }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = current_device();
    set_current_device(device);
    return before;
  }

  c10::Stream getStream(c10::Device device) const override { return current_stream(device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override { return next_of_pool(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*is_high_priority*/) const override {
    return next_of_pool(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = current_stream(stream.device());
    set_current_stream(stream);
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override { return stream_of(stream).record_point()->reached(); }
  void synchronizeStream(const c10::Stream& stream) const override { stream_of(stream).record_point()->wait(); }
  void synchronizeDevice(c10::DeviceIndex device) const override { simulated_cuda::synchronize(device); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device,
              c10::EventFlag /*flag*/) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "an event of device ", device, " on ", stream);
    if (*event == nullptr) *event = new Event;
    event_at(*event).last = stream_of(stream).record_point();
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) stream_of(stream).wait_for(event_at(event).last);
  }
  bool queryEvent(void* event) const override { return event == nullptr || event_at(event).last->reached(); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) event_at(event).last->wait();
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& block, const c10::Stream& stream) const override {
    record_stream(block, stream);
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard);
REGISTER_ALLOCATOR(c10::kCUDA, &device_memory());

}  // namespace
}  // namespace simulated_cuda

namespace at {
namespace {

using namespace simulated_cuda;

// torch looks for this class by name when it first needs CUDA.
class CUDAHooks final : public at::CUDAHooksInterface {
 public:
  explicit CUDAHooks(at::CUDAHooksArgs /*unused*/) {}

  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  int getNumGPUs() const override { return kDevices; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex current_device() const override { return simulated_cuda::current_device().index(); }
  c10::DeviceIndex getCurrentDevice() const override { return simulated_cuda::current_device().index(); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory(); }
  c10::Allocator* getCUDADeviceAllocator() const override { return &device_memory(); }
  c10::Device getDeviceFromPtr(void* data) const override { return device_of_memory(data); }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
};

REGISTER_CUDA_HOOKS(CUDAHooks);

}  // namespace
}  // namespace at

#pragma GCC visibility push(default)
extern "C" {

std::size_t simulated_cuda_reserved_bytes() {
  return simulated_cuda::reserved_bytes();
}

std::size_t simulated_cuda_free_bytes(int device) {
  return simulated_cuda::kDeviceBytes - simulated_cuda::taken_bytes(static_cast<std::size_t>(device));
}

std::size_t simulated_cuda_device_bytes() {
  return simulated_cuda::kDeviceBytes;
}

int simulated_cuda_devices() {
  return simulated_cuda::kDevices;
}

// Keeps the current stream of the calling thread busy for this time.
void simulated_cuda_sleep(int milliseconds) {
  const std::chrono::milliseconds time(milliseconds);
  simulated_cuda::current(simulated_cuda::current_device()).enqueue([time] { std::this_thread::sleep_for(time); });
}

}  // extern "C"
#pragma GCC visibility pop
