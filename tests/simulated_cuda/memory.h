#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstddef>

namespace simulated_cuda {

// Memory of the devices: the host that reads or writes at such an address ends with SIGSEGV. What is given back is
// overwritten, in the order of the stream that it was taken for, which may have it again at once, as torch's allocator
// does it.
c10::Allocator& device_memory();

// Where a stream finds what lies at an address of a device. Throws c10::Error if it is another's.
std::byte* within_device(const void* address, c10::Device device);

// Another stream uses a block: it is not given back before that is done. Nothing if it is not from here.
void record_stream(const c10::DataPtr& block, const c10::Stream& stream);

std::size_t reserved_bytes();

// Memory of the host that streams may use later. What is given back is used again after those that it was told of, by
// the context of its block or, where somebody has no more than that, its first address; so torch's allocator wants it.
c10::Allocator& pinned_memory();
bool is_pinned(const void* address);
void record_pinned(const void* context, const void* address, const c10::Stream& stream);

}  // namespace simulated_cuda
