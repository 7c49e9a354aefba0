#pragma once

#include <cstddef>
#include <cstdint>

namespace service_streamer::ipc {

// The framing of messages in a socket: header, body, header, body, and so on. The descriptors of a message are sent in
// order. The first are sent with the first byte of the header. Every sendmsg but the last carries kDescriptorsAtOnce of
// them.
constexpr std::uint32_t kMagic = 0x31505353;     // "SSP1"
constexpr std::size_t kDescriptorsAtOnce = 253;  // the kernel's limit per sendmsg

}  // namespace service_streamer::ipc
