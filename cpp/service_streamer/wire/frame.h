#pragma once

#include <cstddef>
#include <cstdint>

namespace service_streamer::ipc {

// How messages follow each other in a socket: header, body, header, body… The descriptors of a message come in order, so many
// with each sendmsg (the kernel's limit) but the last; the first of them with the first byte of its header.
constexpr std::uint32_t kMagic = 0x31505353;  // "SSP1"
constexpr std::size_t kDescriptorsAtOnce = 253;

}  // namespace service_streamer::ipc
