#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstddef>

namespace simulated_cuda {

constexpr std::size_t kDeviceBytes = std::size_t{1}
                                     << 30;  // of each device; pages that are never written use no memory

// Device memory. If the host accesses such an address, the process ends with SIGSEGV. Like in torch's allocator, released
// memory can be allocated again immediately for the same stream. It is overwritten in the order of that stream, so that
// stale reads are found.
c10::Allocator& device_memory();

// Converts a device address to one that the thread of a stream can access. Throws c10::Error if it belongs to another
// device.
std::byte* within_device(const void* address, c10::Device device);

// The device that an address belongs to. Throws c10::Error if it belongs to none.
c10::Device device_of_memory(const void* address);

// Notes that another stream uses a block: the block is not released before that stream's work is done. Ignores other
// memory.
void record_stream(const c10::DataPtr& block, const c10::Stream& stream);

std::size_t reserved_bytes();
std::size_t taken_bytes(std::size_t device);  // those that have not been released

// Pinned host memory, which streams may use asynchronously. A released block is reused only after the streams that were
// recorded with record_pinned(). Like in torch's allocator, a block is identified by its context or its first address.
c10::Allocator& pinned_memory();
bool is_pinned(const void* address);
void record_pinned(const void* context, const void* address, const c10::Stream& stream);

}  // namespace simulated_cuda
