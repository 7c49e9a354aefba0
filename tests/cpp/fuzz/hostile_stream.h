#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace service_streamer::ipc::fuzz {

// Plays a peer that writes the input to a Connection. Accepted messages are sent over another connection, where they
// must be accepted again. Returns how many messages were accepted.
//
// The input is a list of writes: {number of descriptors, their kinds, length (2 bytes, little-endian)} and the bytes. A
// kind has two bits: a valid block (0, 3), a memfd that is not sealed (1), a socket (2).
std::size_t play(std::span<const std::uint8_t> input);

}  // namespace service_streamer::ipc::fuzz
