#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstddef>

namespace simulated_cuda {

// Memory of the devices: the host that reads or writes at such an address ends with SIGSEGV. What is given back is overwritten, in
// the order of the stream that it was taken for, which may have it again at once, as torch's allocator does it.
c10::Allocator& device_memory();

// Where a stream finds what lies at an address of a device.
std::byte* within_device(const void* address);

// Another stream uses a block: it is not given back before that is done.
void record_stream(const c10::DataPtr& block, const c10::Stream& stream);

std::size_t reserved_bytes();

// Memory of the host that streams may use later, if it was told so by the block's first address; as torch's allocator wants it.
c10::Allocator& pinned_memory();
bool is_pinned(const void* address);
void record_pinned(const void* address, const c10::Stream& stream);

}  // namespace simulated_cuda
