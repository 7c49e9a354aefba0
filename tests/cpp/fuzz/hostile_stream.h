#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace service_streamer::ipc::fuzz {

// Plays a peer that writes whatever it likes to a Connection, takes apart what comes through, and sends that on over another
// connection, where it must come through again. Returns how many messages were accepted.
//
// The input is a list of writes: {how many descriptors go along, their kinds, length (2 bytes, little-endian)} and the bytes.
// Kinds take two bits each: a block as it must be (0, 3), a memfd that is not sealed, a socket.
std::size_t play(std::span<const std::uint8_t> input);

}  // namespace service_streamer::ipc::fuzz
